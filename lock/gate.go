package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// gate has the goroutines of one session that want one resource share one claim of the session, first
// come, first served. The session's lock guards it; nothing in it waits.
//
//	         a turn joins             granted            the last holder is done
//	idle ─────────────────► asking ───────────► held ───────────────────────────► giving
//	 ▲                        │  ▲                │                                  │
//	 │                        │  └ waits          │ lost: the holders are told       │
//	 └────────────────────────┴───────────────────┴──────────────────────────────────┘
//	    refused, or nobody wants it any more
//
// A grant serves the turns that waited for it here when it came, up to the first that asks for something else
// than the claim that was granted. Those behind it, and those that join later, wait for
// the next one, behind the other sessions in the queue of the resource. Only turns that share the claim
// may join it later, while nobody else waits for the resource.
type gate struct {
	session *Session
	key     string
	phase   phase
	// queue are the turns that wait, holders those that hold.
	queue, holders []*turn
	// command is the one that is under way.
	command *command
	// claim is what was asked for last, token that of the claim that is held; batch is how many turns at the
	// head of the queue it may still serve.
	claim acquisition
	token uint64
	batch int
	// looking is set while the resource's queue is looked at for shared turns that came later, resting until
	// it is time to look again.
	looking, resting bool
	// attempts counts how often in a row a command failed for the moment.
	attempts int
	// watchers are told of a lock that nobody here has asked for.
	watchers []*watcher
}

// lookInterval is how often the queue of a resource is looked at while shared turns wait to join a claim.
const lookInterval = 200 * time.Millisecond

// phase is what a gate does with the session's claim.
type phase int

const (
	idle phase = iota
	asking
	held
	giving
)

// watcher is told of what nobody at the gate has asked for. Either function may be nil.
type watcher struct {
	serial
	locked, unlocked func(Status)
}

// told has one of the functions called.
func (w *watcher) told(f func(Status), to Status) {
	if f != nil {
		w.add(func() { f(to) })
	}
}

// join adds a turn to the queue. One that tries is refused if it would have to wait for others of the session.
func (g *gate) join(t *turn) {
	if t.try {
		if err := g.inTheWay(t); err != nil {
			t.fail(err)
			return
		}
		g.resting = false
	}
	g.queue = append(g.queue, t)
	g.step()
}

// inTheWay returns whom of the session a turn that tries would have to wait for, nil if there is nobody.
func (g *gate) inTheWay(t *turn) error {
	if len(g.holders) > 0 && (g.phase != held || !t.joins(&g.claim)) {
		return collision(g.session.owner)
	}
	for _, other := range g.queue {
		if !t.joins(&other.acquisition) {
			return g.waiting()
		}
	}
	if g.phase == asking && g.command == nil {
		return g.waiting()
	}
	return nil
}

// waiting returns the error of a try for which others of the session wait already.
func (g *gate) waiting() error {
	return fmt.Errorf("%w: %q waits for it already", models.ErrLockCollision, g.session.owner)
}

// differs reports whether a shared claim would have to wait for turns that all share the resource, by other claims.
func (g *gate) differs(a *acquisition) bool {
	others := slices.Concat(g.holders, g.queue)
	return a.shared() && len(others) > 0 && !slices.ContainsFunc(others, func(t *turn) bool { return !t.shared() || t.same(a) })
}

// leave removes a turn from the queue.
func (g *gate) leave(t *turn) {
	g.remove(t)
	g.step()
	if g.phase == giving {
		t.give = g.command
	}
	g.forget()
}

// remove takes a turn out of the queue, and reports whether it was there.
func (g *gate) remove(t *turn) bool {
	i := slices.Index(g.queue, t)
	if i < 0 {
		return false
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	if i < g.batch {
		g.batch--
	}
	return true
}

// failIf fails the turns in the queue for which a condition holds.
func (g *gate) failIf(fails func(*turn) bool, err error) {
	for _, t := range slices.Clone(g.queue) {
		if fails(t) && g.remove(t) {
			t.fail(err)
		}
	}
}

// release ends a turn that holds.
func (g *gate) release(t *turn, cause error) {
	t.finish(cause)
	for i, holder := range g.holders {
		if holder == t {
			g.holders = append(g.holders[:i:i], g.holders[i+1:]...)
			g.step()
			if g.phase == giving && len(g.holders) == 0 {
				t.give = g.command
			}
			break
		}
	}
	g.forget()
}

// step does what is to be done next.
func (g *gate) step() {
	if g.session.err != nil {
		return
	}
	switch g.phase {
	case idle:
		if len(g.queue) > 0 && len(g.holders) == 0 {
			g.ask()
		}
	case asking:
		if g.command == nil {
			g.await()
		}
	case held:
		g.admit()
		if len(g.holders) == 0 {
			g.give()
		}
	case giving:
	}
}

// await goes on to wait in the queue of the resource, if that is for the turn that is first here.
func (g *gate) await() {
	if len(g.queue) == 0 || g.queue[0].try || !g.queue[0].same(&g.claim) {
		g.give()
		return
	}
	g.failIf(func(t *turn) bool { return t.try }, g.waiting())
}

// admit lets the turns hold that the claim serves.
func (g *gate) admit() {
	for len(g.queue) > 0 {
		t := g.queue[0]
		if !t.same(&g.claim) || len(g.holders) > 0 && !t.shared() {
			return
		}
		if g.batch == 0 {
			if len(g.holders) > 0 {
				g.look()
			}
			return
		}
		g.remove(t)
		g.holders = append(g.holders, t)
		t.grant(g.token)
	}
}

// look finds out whether others wait for the resource. If nobody does, the turns that wait here join
// the shared claim. Otherwise those that only try are refused, and the others wait until nobody does any more, or the
// claim was given up.
func (g *gate) look() {
	switch s := g.session; {
	case g.looking, g.resting:
	case s.rpc == nil:
		g.rest()
	default:
		g.looking = true
		rpc, token, seen := s.rpc, g.token, slices.Clone(g.queue)
		s.closings.Go(func() {
			ctx, cancel := context.WithTimeout(withRequestID(s.life), s.answerTimeout())
			defer cancel()
			queue, err := rpc.GetQueue(ctx, &models.GetQueueRequest{Resource: g.key, Limit: new(uint32(1))})
			s.mu.Lock()
			defer s.mu.Unlock()
			g.looking = false
			if g.phase == held && g.token == token {
				g.looked(seen, queue.GetWaiting() > 0, err)
			}
			g.step()
		})
	}
}

// looked takes what was found when some turns waited here.
func (g *gate) looked(seen []*turn, others bool, err error) {
	switch {
	case err == nil && !others:
		for g.batch < len(g.queue) && slices.Contains(seen, g.queue[g.batch]) {
			g.batch++
		}
		return
	case err == nil:
		err = fmt.Errorf("%w: others wait for it", models.ErrLockCollision)
	case isMomentary(err):
		g.rest()
		return
	}
	g.failIf(func(t *turn) bool { return t.try && slices.Contains(seen, t) }, err)
	g.rest()
}

// rest has the queue of the resource looked at again after a while.
func (g *gate) rest() {
	if g.resting {
		return
	}
	g.resting = true
	time.AfterFunc(lookInterval, func() {
		g.session.mu.Lock()
		defer g.session.mu.Unlock()
		g.resting = false
		g.step()
	})
}

// ask asks for the claim, for the turn that is first.
func (g *gate) ask() {
	t := g.queue[0]
	g.phase, g.claim = asking, t.acquisition
	g.send(&command{lock: t.command(g.key, t.try)}, func(now Status, err error) {
		switch {
		case err != nil && isMomentary(err) && !t.try:
			g.retry(g.ask, func() bool { return len(g.queue) > 0 })
		case err != nil:
			g.phase = idle
			g.failIf(func(other *turn) bool { return other == t }, err)
			g.step()
		case now.Current == None && t.try:
			g.phase = idle
			g.failIf(func(other *turn) bool { return other == t || other.try && other.joins(&t.acquisition) }, collision(now.Holder))
			g.step()
		case now.Current == None: // it has ended already
			g.phase = idle
			g.failAll(now.Cause)
			g.step()
		default:
			g.changed(now)
			g.step()
		}
	})
}

// give gives the claim up.
func (g *gate) give() {
	unlock := &models.UnlockCommand{Resource: g.key}
	if g.phase == held {
		unlock.Token = new(g.token)
	}
	g.phase, g.token, g.batch = giving, 0, 0
	g.sendUnlock(unlock)
}

func (g *gate) sendUnlock(unlock *models.UnlockCommand) {
	g.send(&command{unlock: unlock}, func(_ Status, err error) {
		if err != nil { // nobody else gets it before it is given up
			g.retry(func() { g.sendUnlock(unlock) }, func() bool { return true })
			return
		}
		g.phase = idle
		g.step()
	})
}

// send sends a command, and takes its answer, after which the gate may be forgotten.
func (g *gate) send(c *command, then func(Status, error)) {
	c.resource = g.key
	c.then = func(now Status, err error) {
		if g.command != c || g.session.err != nil {
			return // news came before the answer; or end tells everybody
		}
		g.command = nil
		if err == nil {
			g.attempts = 0
		}
		then(now, err)
		g.forget()
	}
	g.command = g.session.newCommand(c)
}

// retry does something again after a while, if it is still wanted then.
func (g *gate) retry(again func(), wanted func() bool) {
	g.attempts++
	pause := min(firstPause<<min(g.attempts, 10), time.Second)
	phase := g.phase
	time.AfterFunc(pause, func() {
		g.session.mu.Lock()
		defer g.session.mu.Unlock()
		switch {
		case g.session.err != nil || g.phase != phase || g.command != nil:
		case wanted():
			again()
		default:
			g.phase = idle
			g.forget()
		}
	})
}

// changed takes a change of the session's claim.
func (g *gate) changed(to Status) {
	switch {
	case to.Current == Holding && g.phase == asking:
		g.phase, g.token = held, to.Token
		g.batch = len(g.queue)
		g.step()
	case to.Current == Holding && g.phase == idle && to.Previous != Holding:
		for _, w := range g.watchers {
			w.told(w.locked, to)
		}
	case to.Current == None && g.phase == held:
		g.lose(to)
	case to.Current == None && g.phase == asking && g.command == nil: // the claim that waited has ended
		g.phase = idle
		g.failAll(to.Cause)
		g.step()
	}
	g.forget()
}

// lose tells the holders that the session has lost the claim.
func (g *gate) lose(to Status) {
	if to.Cause == nil {
		to.Cause = lost(g.key, errors.New("the session gave it up"))
	}
	g.phase, g.token, g.batch = idle, 0, 0
	stay := g.holders[:0]
	var told *watcher // readers have one in common
	for _, t := range g.holders {
		t.finish(to.Cause)
		if t.keepsOut {
			stay = append(stay, t)
		}
		if t.watcher != nil && t.watcher != told {
			told = t.watcher
			told.told(told.unlocked, to)
		}
	}
	g.holders = stay
	g.step()
}

// failAll fails the turns that wait for the claim, since that has ended.
func (g *gate) failAll(cause error) {
	if cause == nil {
		cause = errors.New("the session gave its place in the queue up")
	}
	g.failIf(func(t *turn) bool { return t.same(&g.claim) }, cause)
}

// end fails and finishes all turns, since the session is over.
func (g *gate) end(cause error) {
	g.failIf(func(*turn) bool { return true }, cause)
	for _, t := range g.holders {
		t.finish(lost(g.key, cause))
	}
}

// forget removes the gate from the session if there is nothing to remember.
func (g *gate) forget() {
	if g.phase == idle && len(g.queue) == 0 && len(g.holders) == 0 && len(g.watchers) == 0 && g.session.gates[g.key] == g {
		delete(g.session.gates, g.key)
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
