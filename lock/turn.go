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
	if t.observer != nil {
		t.observer.acquired(token)
		if s := t.gate.session; s.doubted {
			t.observer.unverifiable(s.unverified())
		}
	}
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
	return newHold(ctx, t), nil
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
			return t.Err()
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

// Release ends a turn, whether it waits or holds, and returns when the server knows of it.
func (t *turn) Release(ctx context.Context) error {
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

func (t *turn) whenOver(f context.CancelCauseFunc) {
	s := t.gate.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.cancel = f; t.err != nil {
		f(t.err)
	}
}

// Token returns that of the grant.
func (t *turn) Token() uint64 { return t.token }

// Deadline returns the end of the session's trust window.
func (t *turn) Deadline() time.Time {
	s := t.gate.session
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return now.Add(s.window.Left(now))
}

// Done is closed when the turn no longer holds.
func (t *turn) Done() <-chan struct{} { return t.done }

// Err returns why the turn no longer holds, or has failed.
func (t *turn) Err() error {
	s := t.gate.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resignIfUntrusted()
	return t.err
}
