package lock

import (
	"context"
	"fmt"
	"time"
)

// turn is one goroutine's wish to hold a resource by a session, from when it joins the queue until it is
// over. The session's lock guards it.
type turn struct {
	acquisition
	gate *gate
	try  bool
	// begun is when it joined.
	begun time.Time

	// decided is closed when it holds, or has failed with err.
	decided chan struct{}
	err     error
	token   uint64
	// done is closed when it holds no longer, because of err.
	done   chan struct{}
	cancel context.CancelCauseFunc
	// give is the command that released the session's claim with this turn; nil if others took over.
	give *command
}

// grant makes it hold.
func (t *turn) grant(token uint64) {
	t.token = token
	close(t.decided)
}

// fail ends the wait.
func (t *turn) fail(err error) {
	t.err = fmt.Errorf("lock %q: %w", t.gate.key, err)
	close(t.decided)
}

// finish ends the hold.
func (t *turn) finish(err error) {
	if t.err == nil {
		t.err = err
		close(t.done)
		t.cancel(err)
	}
}

// acquire waits for a turn. The context bounds the wait only.
func (s *Session) acquire(ctx context.Context, key string, a acquisition, try bool) (*Hold, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	return s.join(key, a, try).await(ctx)
}

// await returns what is held when the turn has come.
func (t *turn) await(ctx context.Context) (*Hold, error) {
	if err := t.wait(ctx); err != nil {
		return nil, err
	}
	return t.hold(ctx), nil
}

// join adds a turn to those that want the resource.
func (s *Session) join(key string, a acquisition, try bool) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joinLocked(key, a, try)
}

// joinIfAlike is join, but returns nil if all that want the resource share it by other claims.
func (s *Session) joinIfAlike(key string, a acquisition, try bool) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.gates[key]; g != nil && g.differs(&a) {
		return nil
	}
	return s.joinLocked(key, a, try)
}

func (s *Session) joinLocked(key string, a acquisition, try bool) *turn {
	s.resignIfUntrusted()
	g := s.gateOf(key)
	t := &turn{
		acquisition: a, gate: g, try: try, begun: time.Now(),
		decided: make(chan struct{}), done: make(chan struct{}), cancel: func(error) {},
	}
	if s.err != nil {
		t.fail(s.err)
	} else {
		g.join(t)
	}
	g.forget()
	return t
}

// gateOf returns the gate of a resource. The caller has the lock.
func (s *Session) gateOf(key string) *gate {
	g := s.gates[key]
	if g == nil {
		g = &gate{session: s, key: key}
		s.gates[key] = g
	}
	return g
}

// wait returns when the turn has come. If that is an error, it has given the turn up.
func (t *turn) wait(ctx context.Context) error {
	var timer *time.Timer
	var tooLong <-chan time.Time
	if t.timeout > 0 {
		timer = time.NewTimer(t.timeout)
		defer timer.Stop()
		tooLong = timer.C
	}
	for {
		select {
		case <-t.decided:
			return t.verdict()
		case <-ctx.Done():
			return t.abandon(ctx.Err())
		case <-tooLong:
			left := t.unanswered()
			if left <= 0 {
				return t.abandon(ErrTimeout)
			}
			timer.Reset(left)
		}
	}
}

// verdict returns why the turn failed, nil if it holds.
func (t *turn) verdict() error {
	s := t.gate.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resignIfUntrusted()
	return t.err
}

// unanswered returns what is left of the timeout of the command that is under way; a try is one.
func (t *turn) unanswered() time.Duration {
	s := t.gate.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.try {
		return t.timeout - time.Since(t.begun)
	}
	if c := t.gate.command; c != nil {
		return t.timeout - time.Since(c.begun)
	}
	return t.timeout
}

// abandon gives the turn up, unless it has come in this moment and there is nothing against it.
func (t *turn) abandon(cause error) error {
	s := t.gate.session
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-t.decided:
		if t.err != nil {
			return t.err
		}
		t.gate.release(t, cause)
	default:
		t.gate.leave(t)
	}
	return fmt.Errorf("lock %q: %w", t.gate.key, s.inVain(cause))
}

// giveUp ends a turn, whether it waits or holds, and returns when the server knows of it.
func (t *turn) giveUp(ctx context.Context) error {
	s := t.gate.session
	s.mu.Lock()
	s.resignIfUntrusted()
	select {
	case <-t.decided:
		t.gate.release(t, ErrReleased)
	default:
		t.fail(ErrReleased)
		t.gate.leave(t)
	}
	give := t.give
	s.mu.Unlock()
	if give == nil {
		return nil
	}
	if _, err := s.await(ctx, give, t.timeout); err != nil && s.Err() == nil {
		return err
	}
	return nil
}

// hold returns the handle of a turn that has come.
func (t *turn) hold(ctx context.Context) *Hold {
	s := t.gate.session
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &Hold{turn: t}
	h.ctx = newHoldContext(context.WithoutCancel(ctx), h)
	t.cancel = h.ctx.cancel
	if t.err != nil {
		t.cancel(t.err)
	}
	return h
}

// Hold is a lock, or a claim, that is held. Its methods may be called by any number of goroutines.
type Hold struct {
	turn *turn
	ctx  *holdContext // it lasts as long as the hold
}

// Context is done as soon as the lock is no longer held: context.Cause then says why, as Err does. It has the
// values of the context of Acquire, and not its end. Its Err and Done read the clock, as Hold.Err does: after a long pause
// they are right when they are called. A channel that was had from Done before the pause, and a context with an end of its
// own that is made of this one, are so when a timer has run, or anybody has asked the hold or this context.
func (h *Hold) Context() context.Context { return h.ctx }

// Token returns the fencing token of the grant. Goroutines that take over from each other within one
// session have the same one.
func (h *Hold) Token() uint64 { return h.turn.token }

// Done is closed as soon as the lock is no longer held.
func (h *Hold) Done() <-chan struct{} { return h.turn.done }

// Err returns nil while the lock is held at this moment: it reads the clock, so it is right even in the first
// moment after a long pause. Then it is ErrReleased, or wraps ErrLost and the cause.
func (h *Hold) Err() error {
	s := h.turn.gate.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resignIfUntrusted()
	return h.turn.err
}

// Release gives the lock up: this very hold, and none that came after it. It returns when the server knows, or
// at once if another goroutine of the session takes over, or if the lock is not held any more. After an error,
// such as that of ctx, the release goes on in the background. To release again is no error.
func (h *Hold) Release(ctx context.Context) error { return h.turn.giveUp(ctx) }
