package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"weak"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// queue lets the goroutines of one session share one claim on a resource, first come, first served. The session's
// lock guards it; no method waits.
//
//	         a goroutine asks            granted            the last holder is done
//	idle ─────────────────► requested ───────────► held ───────────────────────────► releasing
//	 ▲                        │  ▲                   │                                  │
//	 │                        │  └ waits             │ lost: holders are notified       │
//	 └────────────────────────┴──────────────────────┴──────────────────────────────────┘
//	    refused, or nobody wants it any more
//
// A grant serves the waiters that were here when it came, up to the first that asks for a different claim. The waiters
// behind it, and later ones, wait for the next grant, behind the other sessions in the queue of the resource. Later
// waiters may join a shared claim only while nobody else waits for the resource.
type queue struct {
	session *Session
	key     string
	phase   phase
	// waiters wait, holders have the lock.
	waiters, holders []*hold
	// command is under way.
	command *command
	// claim is the last one asked for, token is set while it is held; batch is how many waiters at the head of the
	// queue it may still serve.
	claim Want
	token uint64
	batch int
	// looking is set while the resource's queue is read for later shared waiters, and resting until the next read.
	looking, resting bool
	// attempts counts consecutive temporary failures of a command.
	attempts int
	// watchers are notified of a lock that no goroutine here requested.
	watchers []weak.Pointer[Watcher]
}

// lookInterval is how often the queue of a resource is read while shared waiters may join a claim.
const lookInterval = 200 * time.Millisecond

// phase is the state of the session's claim.
type phase int

const (
	idle phase = iota
	requested
	held
	releasing
)

// Watcher is notified of changes that no goroutine in the queue requested. Either function may be nil.
type Watcher struct {
	calls            inbox.Inbox
	Locked, Unlocked func(Status)
}

// call calls one of the functions.
func (w *Watcher) call(f func(Status), to Status) {
	if f != nil {
		w.calls.Put(func() { f(to) })
	}
}

// join adds a hold to the queue. One that tries is refused if it would have to wait for others of the session.
func (q *queue) join(h *hold) {
	if h.try {
		if err := q.conflict(h); err != nil {
			h.fail(err)
			return
		}
		q.resting = false
	}
	q.waiters = append(q.waiters, h)
	q.step()
	if slices.Contains(q.waiters, h) && q.phase != idle && q.command == nil {
		h.waits()
	}
}

// conflict returns an error if a try would have to wait for others of the session, nil otherwise.
func (q *queue) conflict(h *hold) error {
	if len(q.holders) > 0 && (q.phase != held || !h.joins(&q.claim)) {
		return collision(q.session.Owner)
	}
	for _, other := range q.waiters {
		if !h.joins(&other.Want) {
			return q.waiting()
		}
	}
	if q.phase == requested && q.command == nil {
		return q.waiting()
	}
	return nil
}

// waiting returns the error of a try when others of the session wait already.
func (q *queue) waiting() error {
	return fmt.Errorf("%w: %q waits for it already", models.ErrLockCollision, q.session.Owner)
}

// differs reports whether a shared claim would have to wait for holds that share the resource by a different claim.
func (q *queue) differs(a *Want) bool {
	others := slices.Concat(q.holders, q.waiters)
	return a.shared() && len(others) > 0 && !slices.ContainsFunc(others, func(h *hold) bool { return !h.shared() || h.same(a) })
}

func (q *queue) leave(h *hold) {
	q.remove(h)
	q.takeBack()
	q.step()
	if q.phase == releasing {
		h.unlock = q.command
	}
	q.forget()
}

// takeBack cancels the request for a claim that nobody here waits for any more, unless a server may have received the
// command.
func (q *queue) takeBack() {
	if c := q.command; q.phase == requested && c != nil && !c.known && !q.wanted() {
		q.session.remove(c)
		q.command, q.phase = nil, idle
	}
}

// remove takes a waiter out of the queue, and reports whether it was there.
func (q *queue) remove(h *hold) bool {
	i := slices.Index(q.waiters, h)
	if i < 0 {
		return false
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	if i < q.batch {
		q.batch--
	}
	return true
}

// failIf fails the waiters that meet a condition.
func (q *queue) failIf(fails func(*hold) bool, err error) {
	for _, h := range slices.Clone(q.waiters) {
		if fails(h) && q.remove(h) {
			h.fail(err)
		}
	}
}

// release ends a hold that has the lock.
func (q *queue) release(h *hold, cause error) {
	h.end(cause)
	for i, holder := range q.holders {
		if holder == h {
			q.holders = append(q.holders[:i:i], q.holders[i+1:]...)
			q.step()
			if q.phase == releasing && len(q.holders) == 0 {
				h.unlock = q.command
			}
			break
		}
	}
	q.forget()
}

// step takes the next step.
func (q *queue) step() {
	if q.session.err != nil {
		return
	}
	switch q.phase {
	case idle:
		if len(q.waiters) > 0 && len(q.holders) == 0 {
			q.request()
		}
	case requested:
		switch {
		case !q.wanted():
			q.giveUp()
		case q.command == nil:
			q.await()
		}
	case held:
		q.admit()
		if len(q.holders) == 0 {
			q.giveUp()
		}
	case releasing:
	}
}

// wanted reports whether the first waiter here wants the requested claim.
func (q *queue) wanted() bool { return len(q.waiters) > 0 && q.waiters[0].same(&q.claim) }

// await keeps waiting in the queue of the resource, unless the first waiter here only tries.
func (q *queue) await() {
	if q.waiters[0].try {
		q.giveUp()
		return
	}
	q.failIf(func(h *hold) bool { return h.try }, q.waiting())
}

// admit gives the lock to the waiters that the claim serves.
func (q *queue) admit() {
	for len(q.waiters) > 0 {
		h := q.waiters[0]
		if !h.same(&q.claim) || len(q.holders) > 0 && !h.shared() {
			return
		}
		if q.batch == 0 {
			if len(q.holders) > 0 {
				q.look()
			}
			return
		}
		q.remove(h)
		q.holders = append(q.holders, h)
		h.grant(q.token)
	}
}

// look finds out whether others wait for the resource. If nobody does, the waiters here join the shared claim.
// Otherwise tries are refused, and the other holds wait until nobody else waits, or the claim is given up.
func (q *queue) look() {
	switch s := q.session; {
	case q.looking, q.resting:
	case s.rpc == nil:
		q.rest()
	default:
		q.looking = true
		rpc, token, seen := s.rpc, q.token, slices.Clone(q.waiters)
		s.closings.Go(func() {
			ctx, cancel := context.WithTimeout(base.WithRequestID(s.life), s.answerTimeout())
			defer cancel()
			queue, err := rpc.GetQueue(ctx, &models.GetQueueRequest{Resource: q.key, Limit: new(uint32(1))})
			s.mu.Lock()
			defer s.mu.Unlock()
			q.looking = false
			if q.phase == held && q.token == token {
				q.looked(seen, queue.GetWaiting() > 0, err)
			}
			q.step()
		})
	}
}

// looked handles the result of look if waiters are still here.
func (q *queue) looked(seen []*hold, others bool, err error) {
	switch {
	case err == nil && !others:
		for q.batch < len(q.waiters) && slices.Contains(seen, q.waiters[q.batch]) {
			q.batch++
		}
		return
	case err == nil:
		err = fmt.Errorf("%w: others wait for it", models.ErrLockCollision)
	case isMomentary(err):
		q.rest()
		return
	}
	q.failIf(func(h *hold) bool { return h.try && slices.Contains(seen, h) }, err)
	q.rest()
}

// rest schedules the next look.
func (q *queue) rest() {
	if q.resting {
		return
	}
	q.resting = true
	time.AfterFunc(lookInterval, func() {
		q.session.mu.Lock()
		defer q.session.mu.Unlock()
		q.resting = false
		q.step()
	})
}

// request sends the command for the first waiter's claim.
func (q *queue) request() {
	h := q.waiters[0]
	q.phase, q.claim = requested, h.Want
	lock := lockCommand(&h.Want, q.key, h.try)
	lock.request.Traceparent = h.observer.Traceparent
	q.send(lock, func(now Status, err error) {
		switch {
		case err != nil && isMomentary(err) && !h.try:
			q.failIf(func(other *hold) bool { return other.try }, err)
			q.retry(q.request, func() bool { return len(q.waiters) > 0 })
		case err != nil:
			q.phase = idle
			q.failIf(func(other *hold) bool { return other == h }, err)
			q.step()
		case now.Current == None && h.try:
			q.phase = idle
			q.failIf(func(other *hold) bool { return other == h || other.try && other.joins(&h.Want) }, collision(now.Holder))
			q.step()
		case now.Current == None: // it has ended already
			q.phase = idle
			if slices.Contains(q.waiters, h) { // otherwise the others know of it, and wait for the next one
				q.failAll(q.session.causeOf(&now))
			}
			q.step()
		default:
			q.changed(now)
			q.step()
			if now.Current == Waiting {
				for _, h := range q.waiters {
					h.waits()
				}
			}
		}
	})
}

// giveUp releases the claim. It does not wait for the answer to the command that requested it, because the server
// executes both in order.
func (q *queue) giveUp() {
	var token *uint64
	if q.phase == held && q.command == nil {
		token = new(q.token)
	}
	q.phase, q.token, q.batch = releasing, 0, 0
	q.unlock(token)
}

func (q *queue) unlock(token *uint64) {
	q.send(unlockCommand(q.key, token), func(_ Status, err error) {
		if err != nil { // nobody else gets it before it is released
			q.failIf(func(h *hold) bool { return h.try }, err)
			q.retry(func() { q.unlock(token) }, func() bool { return true })
			return
		}
		q.phase = idle
		q.step()
	})
}

// send sends a command and handles its answer. The queue may be removed after that.
func (q *queue) send(c *command, then func(Status, error)) {
	c.then = func(now Status, err error) {
		if q.command != c || q.session.err != nil {
			return // an event came before the answer; or end notifies everybody
		}
		q.command = nil
		if err == nil {
			q.attempts = 0
		}
		then(now, err)
		q.forget()
	}
	q.command = q.session.newCommand(c)
}

// retry calls a function after a pause, if it is still needed then.
func (q *queue) retry(again func(), wanted func() bool) {
	q.attempts++
	pause := base.Backoff.Pause(q.attempts, time.Second)
	phase := q.phase
	time.AfterFunc(pause, func() {
		q.session.mu.Lock()
		defer q.session.mu.Unlock()
		switch {
		case q.session.err != nil || q.phase != phase || q.command != nil:
		case wanted():
			again()
		default:
			q.phase = idle
			q.forget()
		}
	})
}

// changed takes a change of the session's claim.
func (q *queue) changed(to Status) {
	switch {
	case to.Current == Holding && q.phase == requested:
		q.phase, q.token = held, to.Token
		q.batch = len(q.waiters)
		q.step()
	case to.Current == Holding && q.phase == idle && to.Previous != Holding:
		for _, watcher := range q.watchers {
			if w := watcher.Value(); w != nil {
				w.call(w.Locked, to)
			}
		}
	case to.Current == None && q.phase == held:
		q.lose(to)
	case to.Current == None && q.phase == requested && q.command == nil: // the claim that waited has ended
		q.phase = idle
		q.failAll(to.Cause)
		q.step()
	}
	q.forget()
}

// lose notifies the holders that the session has lost the claim.
func (q *queue) lose(to Status) {
	if to.Cause == nil {
		to.Cause = base.Lost(q.key, errors.New("the session released it"))
	}
	q.phase, q.token, q.batch = idle, 0, 0
	if q.command != nil { // it has asked for the claim, and may make another one when it is sent again
		q.phase = requested
	}
	stay := q.holders[:0]
	var last *Watcher // readers share a claim
	for _, h := range q.holders {
		h.end(to.Cause)
		if h.ExcludesAfterLoss {
			stay = append(stay, h)
		}
		if h.Watcher != nil && h.Watcher != last {
			last = h.Watcher
			last.call(last.Unlocked, to)
		}
	}
	q.holders = stay
	q.step()
}

// failAll fails the waiters for a claim that has ended. If it was aborted to end a deadlock, waiters that allow
// deadlocks ask for another claim.
func (q *queue) failAll(cause error) {
	if cause == nil {
		cause = errors.New("the session left the queue")
	}
	deadlock := models.ReasonOf(cause) == models.ReasonDeadlock
	q.failIf(func(h *hold) bool { return h.same(&q.claim) && (!deadlock || !h.AllowDeadlock) }, cause)
}

// end fails and ends all holds, since the session is over.
func (q *queue) end(cause error) {
	q.failIf(func(*hold) bool { return true }, cause)
	for _, h := range q.holders {
		h.end(base.Lost(q.key, cause))
	}
}

// forget removes the queue from the session if there is nothing to remember.
func (q *queue) forget() {
	if q.phase == idle && len(q.waiters) == 0 && len(q.holders) == 0 && len(q.watchers) == 0 && q.session.queues[q.key] == q {
		delete(q.session.queues, q.key)
		q.session.rest()
	}
}

// isMomentary reports whether another attempt of a refused command may succeed.
func isMomentary(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unknown, codes.DeadlineExceeded,
		codes.Canceled: // by the end of the connection
		return models.ReasonOf(err) != models.ReasonSessionFull
	default:
		return false
	}
}

// collision returns the error of a try that finds another holder.
func collision(holder string) error {
	if holder == "" {
		return models.ErrLockCollision
	}
	return fmt.Errorf("%w: held by %q", models.ErrLockCollision, holder)
}
