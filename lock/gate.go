package lock

import (
	"context"
	"errors"
	"fmt"
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
// A grant serves the turns that waited for it here when it came. Those that join later wait for
// the next one, behind the other sessions in the queue of the resource. Only shared turns
// may join while nobody else waits for the resource.
type gate struct {
	session *Session
	key     string
	phase   phase
	// queue are the turns that wait, holders those that hold.
	queue, holders []*turn
	// command is the one that is under way.
	command *command
	// token and shared are those of the claim that is held; batch is how many turns at the head of the
	// queue it still serves.
	token  uint64
	shared bool
	batch  int
	// looking is set while the resource's queue is looked at for a shared turn that came later.
	looking bool
	// attempts counts how often in a row a command failed for the moment.
	attempts int
	// watchers are told of a lock that nobody here has asked for.
	watchers []*watcher
}

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

// join adds a turn to the queue. One that tries is refused if others are before it.
func (g *gate) join(t *turn) {
	joins := g.phase == held && g.shared && t.shared()
	if t.try && (len(g.queue) > 0 || g.phase == asking || len(g.holders) > 0 && !joins) {
		t.fail(collision(g.session.owner))
		return
	}
	g.queue = append(g.queue, t)
	g.step()
}

// leave removes a turn from the queue.
func (g *gate) leave(t *turn) {
	for i, waiting := range g.queue {
		if waiting == t {
			g.queue = append(g.queue[:i:i], g.queue[i+1:]...)
			if i < g.batch {
				g.batch--
			}
			break
		}
	}
	g.step()
	if g.phase == giving {
		t.give = g.command
	}
	g.forget()
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
		if len(g.queue) == 0 && g.command == nil { // it waits, for nobody
			g.give()
		}
	case held:
		g.admit()
		if len(g.holders) == 0 {
			g.give()
		}
	case giving:
	}
}

// admit lets the turns hold that the claim serves.
func (g *gate) admit() {
	for len(g.queue) > 0 {
		t := g.queue[0]
		if t.shared() != g.shared || len(g.holders) > 0 && !g.shared {
			return
		}
		if g.batch == 0 {
			if g.shared && len(g.holders) > 0 {
				g.look()
			}
			return
		}
		g.batch--
		g.queue = g.queue[1:]
		g.holders = append(g.holders, t)
		t.grant(g.token)
	}
}

// look finds out whether others wait for the resource. If nobody does, the turns that wait here join
// the shared claim; otherwise they wait until it was given up, and those that only try are refused.
func (g *gate) look() {
	s := g.session
	if g.looking || s.rpc == nil {
		return
	}
	g.looking = true
	rpc, token, batch := s.rpc, g.token, len(g.queue)
	s.closings.Go(func() {
		ctx, cancel := context.WithTimeout(withRequestID(s.life), s.answerTimeout())
		defer cancel()
		queue, err := rpc.GetQueue(ctx, &models.GetQueueRequest{Resource: g.key, Limit: new(uint32(1))})
		s.mu.Lock()
		defer s.mu.Unlock()
		g.looking = false
		if g.phase != held || g.token != token {
			return
		}
		if err == nil && queue.GetWaiting() == 0 {
			g.batch = min(batch, len(g.queue))
			g.step()
			return
		}
		if t := g.queue; len(t) > 0 && t[0].try {
			g.queue = t[1:]
			t[0].fail(collision(s.owner))
		}
	})
}

// ask asks for the claim, for the turn that is first.
func (g *gate) ask() {
	g.phase = asking
	t := g.queue[0]
	g.send(&command{lock: t.command(g.key, t.try)}, func(now Status, err error) {
		switch {
		case err != nil && isMomentary(err) && !t.try:
			g.retry(g.ask, func() bool { return len(g.queue) > 0 })
		case err != nil:
			g.phase = idle
			g.refuse(t, err)
		case now.Current == None && t.try:
			g.phase = idle
			g.refuse(t, collision(now.Holder))
		case now.Current == None: // it has ended already
			g.phase = idle
			g.failAll(now.Cause)
		default:
			g.changed(now)
			g.step()
		}
	})
}

// refuse fails a turn, if it still waits, with the error of the command that was sent for it.
func (g *gate) refuse(t *turn, err error) {
	if len(g.queue) > 0 && g.queue[0] == t {
		g.queue = g.queue[1:]
		t.fail(err)
	}
	g.step()
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
		g.phase, g.token, g.shared = held, to.Token, to.Shared
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

// failAll fails all turns that wait, since the claim that they wait for has ended.
func (g *gate) failAll(cause error) {
	if cause == nil {
		cause = errors.New("the session gave its place in the queue up")
	}
	queue := g.queue
	g.queue = nil
	for _, t := range queue {
		t.fail(cause)
	}
}

// end fails and finishes all turns, since the session is over.
func (g *gate) end(cause error) {
	g.failAll(cause)
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
		return models.ReasonOf(err) != models.ReasonCircle && models.ReasonOf(err) != models.ReasonSessionFull
	default:
		return false
	}
}

// collision returns the error of a try that finds another holder.
func collision(holder string) error {
	return fmt.Errorf("%w: held by %q", models.ErrLockCollision, holder)
}
