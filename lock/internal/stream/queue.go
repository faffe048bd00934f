package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// queue has the goroutines of one session that want one resource share one claim of the session, first
// come, first served. The session's lock guards it; nothing in it waits.
//
//	         a turn joins                granted            the last holder is done
//	idle ─────────────────► requested ───────────► held ───────────────────────────► releasing
//	 ▲                        │  ▲                   │                                  │
//	 │                        │  └ waits             │ lost: holders are notified       │
//	 └────────────────────────┴──────────────────────┴──────────────────────────────────┘
//	    refused, or nobody wants it any more
//
// A grant serves the turns that waited for it here when it came, up to the first that asks for something else
// than the claim that was granted. Those behind it, and those that join later, wait for
// the next one, behind the other sessions in the queue of the resource. Only turns that share the claim
// may join it later, while nobody else waits for the resource.
type queue struct {
	session *Session
	key     string
	phase   phase
	// waiters are the turns that wait, holders those that hold.
	waiters, holders []*turn
	// command is the one that is under way.
	command *command
	// claim is what was asked for last, token that of the claim that is held; batch is how many turns at the
	// head of the queue it may still serve.
	claim Want
	token uint64
	batch int
	// looking is set while the resource's queue is looked at for shared turns that came later, resting until
	// it is time to look again.
	looking, resting bool
	// attempts counts how often in a row a command failed for the moment.
	attempts int
	// watchers are notified of a lock that no goroutine here has asked for.
	watchers []*Watcher
}

// lookInterval is how often the queue of a resource is looked at while shared turns wait to join a claim.
const lookInterval = 200 * time.Millisecond

// phase is what a queue does with the session's claim.
type phase int

const (
	idle phase = iota
	requested
	held
	releasing
)

// Watcher is notified of what no goroutine in the queue has asked for. Either function may be nil.
type Watcher struct {
	calls            base.Serial
	Locked, Unlocked func(Status)
}

// call has one of the functions called.
func (w *Watcher) call(f func(Status), to Status) {
	if f != nil {
		w.calls.Add(func() { f(to) })
	}
}

// join adds a turn to the queue. One that tries is refused if it would have to wait for others of the session.
func (q *queue) join(t *turn) {
	if t.try {
		if err := q.inTheWay(t); err != nil {
			t.fail(err)
			return
		}
		q.resting = false
	}
	q.waiters = append(q.waiters, t)
	q.step()
	if slices.Contains(q.waiters, t) && q.phase != idle && q.command == nil {
		t.waits()
	}
}

// inTheWay returns whom of the session a turn that tries would have to wait for, nil if there is nobody.
func (q *queue) inTheWay(t *turn) error {
	if len(q.holders) > 0 && (q.phase != held || !t.joins(&q.claim)) {
		return collision(q.session.settings.Owner)
	}
	for _, other := range q.waiters {
		if !t.joins(&other.Want) {
			return q.waiting()
		}
	}
	if q.phase == requested && q.command == nil {
		return q.waiting()
	}
	return nil
}

// waiting returns the error of a try for which others of the session wait already.
func (q *queue) waiting() error {
	return fmt.Errorf("%w: %q waits for it already", models.ErrLockCollision, q.session.settings.Owner)
}

// differs reports whether a shared claim would have to wait for turns that all share the resource, by other claims.
func (q *queue) differs(a *Want) bool {
	others := slices.Concat(q.holders, q.waiters)
	return a.shared() && len(others) > 0 && !slices.ContainsFunc(others, func(t *turn) bool { return !t.shared() || t.same(a) })
}

// leave removes a turn from the queue.
func (q *queue) leave(t *turn) {
	q.remove(t)
	q.step()
	if q.phase == releasing {
		t.unlock = q.command
	}
	q.forget()
}

// remove takes a turn out of the queue, and reports whether it was there.
func (q *queue) remove(t *turn) bool {
	i := slices.Index(q.waiters, t)
	if i < 0 {
		return false
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	if i < q.batch {
		q.batch--
	}
	return true
}

// failIf fails the turns in the queue for which a condition holds.
func (q *queue) failIf(fails func(*turn) bool, err error) {
	for _, t := range slices.Clone(q.waiters) {
		if fails(t) && q.remove(t) {
			t.fail(err)
		}
	}
}

// release ends a turn that holds.
func (q *queue) release(t *turn, cause error) {
	t.finish(cause)
	for i, holder := range q.holders {
		if holder == t {
			q.holders = append(q.holders[:i:i], q.holders[i+1:]...)
			q.step()
			if q.phase == releasing && len(q.holders) == 0 {
				t.unlock = q.command
			}
			break
		}
	}
	q.forget()
}

// step does what is to be done next.
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
		if q.command == nil {
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

// await goes on to wait in the queue of the resource, if that is for the turn that is first here.
func (q *queue) await() {
	if len(q.waiters) == 0 || q.waiters[0].try || !q.waiters[0].same(&q.claim) {
		q.giveUp()
		return
	}
	q.failIf(func(t *turn) bool { return t.try }, q.waiting())
}

// admit lets the turns hold that the claim serves.
func (q *queue) admit() {
	for len(q.waiters) > 0 {
		t := q.waiters[0]
		if !t.same(&q.claim) || len(q.holders) > 0 && !t.shared() {
			return
		}
		if q.batch == 0 {
			if len(q.holders) > 0 {
				q.look()
			}
			return
		}
		q.remove(t)
		q.holders = append(q.holders, t)
		t.grant(q.token)
	}
}

// look finds out whether others wait for the resource. If nobody does, the turns that wait here join
// the shared claim. Otherwise those that only try are refused, and the others wait until nobody does any more, or the
// claim was given up.
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

// looked takes what was found when some turns waited here.
func (q *queue) looked(seen []*turn, others bool, err error) {
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
	q.failIf(func(t *turn) bool { return t.try && slices.Contains(seen, t) }, err)
	q.rest()
}

// rest has the queue of the resource looked at again after a while.
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

// request asks for the claim, for the turn that is first.
func (q *queue) request() {
	t := q.waiters[0]
	q.phase, q.claim = requested, t.Want
	q.send(&command{lock: t.command(q.key, t.try)}, func(now Status, err error) {
		switch {
		case err != nil && isMomentary(err) && !t.try:
			q.retry(q.request, func() bool { return len(q.waiters) > 0 })
		case err != nil:
			q.phase = idle
			q.failIf(func(other *turn) bool { return other == t }, err)
			q.step()
		case now.Current == None && t.try:
			q.phase = idle
			q.failIf(func(other *turn) bool { return other == t || other.try && other.joins(&t.Want) }, collision(now.Holder))
			q.step()
		case now.Current == None: // it has ended already
			q.phase = idle
			q.failAll(now.Cause)
			q.step()
		default:
			q.changed(now)
			q.step()
			if now.Current == Waiting {
				for _, t := range q.waiters {
					t.waits()
				}
			}
		}
	})
}

// giveUp gives the claim up.
func (q *queue) giveUp() {
	unlock := &models.UnlockCommand{Resource: q.key}
	if q.phase == held {
		unlock.Token = new(q.token)
	}
	q.phase, q.token, q.batch = releasing, 0, 0
	q.sendUnlock(unlock)
}

func (q *queue) sendUnlock(unlock *models.UnlockCommand) {
	q.send(&command{unlock: unlock}, func(_ Status, err error) {
		if err != nil { // nobody else gets it before it is given up
			q.retry(func() { q.sendUnlock(unlock) }, func() bool { return true })
			return
		}
		q.phase = idle
		q.step()
	})
}

// send sends a command, and takes its answer, after which the queue may be forgotten.
func (q *queue) send(c *command, then func(Status, error)) {
	c.resource = q.key
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

// retry does something again after a while, if it is still wanted then.
func (q *queue) retry(again func(), wanted func() bool) {
	q.attempts++
	pause := min(base.FirstPause<<min(q.attempts, 10), time.Second)
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
		for _, w := range q.watchers {
			w.call(w.Locked, to)
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

// lose tells the holders that the session has lost the claim.
func (q *queue) lose(to Status) {
	if to.Cause == nil {
		to.Cause = base.Lost(q.key, errors.New("the session gave it up"))
	}
	q.phase, q.token, q.batch = idle, 0, 0
	stay := q.holders[:0]
	var last *Watcher // readers have one in common
	for _, t := range q.holders {
		t.finish(to.Cause)
		if t.KeepsOut {
			stay = append(stay, t)
		}
		if t.Watcher != nil && t.Watcher != last {
			last = t.Watcher
			last.call(last.Unlocked, to)
		}
	}
	q.holders = stay
	q.step()
}

// failAll fails the turns that wait for the claim, since that has ended.
func (q *queue) failAll(cause error) {
	if cause == nil {
		cause = errors.New("the session gave its place in the queue up")
	}
	q.failIf(func(t *turn) bool { return t.same(&q.claim) }, cause)
}

// end fails and finishes all turns, since the session is over.
func (q *queue) end(cause error) {
	q.failIf(func(*turn) bool { return true }, cause)
	for _, t := range q.holders {
		t.finish(base.Lost(q.key, cause))
	}
}

// forget removes the queue from the session if there is nothing to remember.
func (q *queue) forget() {
	if q.phase == idle && len(q.waiters) == 0 && len(q.holders) == 0 && len(q.watchers) == 0 && q.session.queues[q.key] == q {
		delete(q.session.queues, q.key)
	}
}

// isMomentary reports whether a refused command is worth another attempt.
func isMomentary(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unknown, codes.DeadlineExceeded:
		return models.ReasonOf(err) != models.ReasonDeadlock && models.ReasonOf(err) != models.ReasonSessionFull
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
