package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
)

// turn is one goroutine's wish to hold a resource by a session, from when it joins the queue until it is
// over. The session's lock guards it.
type turn struct {
	Want
	queue *queue
	try   bool
	// begun is when it joined.
	begun time.Time

	// decided is closed when it holds, or has failed with err.
	decided chan struct{}
	err     error
	token   uint64
	// done is closed when it holds no longer, because of err.
	done   chan struct{}
	cancel context.CancelCauseFunc
	// unlock is the command that released the session's claim with this turn; nil if others took over.
	unlock *command
}

// grant makes it hold.
func (t *turn) grant(token uint64) {
	t.token = token
	if t.observer != nil {
		s := t.queue.session
		s.renewed(t.observer)
		base.Tell(t.observer.Acquired, token)
		if s.doubted {
			base.Tell(t.observer.Unverifiable, s.unverified())
		}
	}
	close(t.decided)
}

// waits tells its observer that others come first.
func (t *turn) waits() {
	if t.observer != nil {
		base.Tell(t.observer.Waiting, "")
	}
}

// fail ends the wait.
func (t *turn) fail(err error) {
	t.err = fmt.Errorf("lock %q: %w", t.queue.key, err)
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

// join adds a turn to those that want the resource.
func (s *Session) join(key string, a Want, try bool) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joinLocked(key, a, try)
}

// joinIfAlike is join, but returns nil if all that want the resource share it by other claims.
func (s *Session) joinIfAlike(key string, a Want, try bool) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[key]; q != nil && q.differs(&a) {
		return nil
	}
	return s.joinLocked(key, a, try)
}

func (s *Session) joinLocked(key string, a Want, try bool) *turn {
	s.resignIfUntrusted()
	q := s.queueOf(key)
	t := &turn{
		Want: a, queue: q, try: try, begun: time.Now(),
		decided: make(chan struct{}), done: make(chan struct{}), cancel: func(error) {},
	}
	if s.err != nil {
		t.fail(s.err)
	} else {
		q.join(t)
	}
	q.forget()
	return t
}

// queueOf returns the queue of a resource. The caller has the lock.
func (s *Session) queueOf(key string) *queue {
	q := s.queues[key]
	if q == nil {
		q = &queue{session: s, key: key}
		s.queues[key] = q
	}
	return q
}

// wait returns when the turn has come. If that is an error, it has given the turn up.
func (t *turn) wait(ctx context.Context) error {
	var timer *time.Timer
	var tooLong <-chan time.Time
	if t.Timeout > 0 {
		timer = time.NewTimer(t.Timeout)
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
				return t.abandon(base.ErrTimeout)
			}
			timer.Reset(left)
		}
	}
}

// unanswered returns what is left of the timeout of the command that is under way; a try is one.
func (t *turn) unanswered() time.Duration {
	s := t.queue.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.try {
		return t.Timeout - time.Since(t.begun)
	}
	if c := t.queue.command; c != nil {
		return t.Timeout - time.Since(c.begun)
	}
	return t.Timeout
}

// abandon gives the turn up, unless it has come in this moment and there is nothing against it.
func (t *turn) abandon(cause error) error {
	s := t.queue.session
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-t.decided:
		if t.err != nil {
			return t.err
		}
		t.queue.release(t, cause)
	default:
		t.queue.leave(t)
	}
	return fmt.Errorf("lock %q: %w", t.queue.key, s.inVain(cause))
}

// Release ends a turn, whether it waits or holds, and returns when the server knows of it.
func (t *turn) Release(ctx context.Context) error {
	s := t.queue.session
	s.mu.Lock()
	s.resignIfUntrusted()
	select {
	case <-t.decided:
		t.queue.release(t, base.ErrReleased)
	default:
		t.fail(base.ErrReleased)
		t.queue.leave(t)
	}
	unlock := t.unlock
	s.mu.Unlock()
	if unlock == nil {
		return nil
	}
	if _, err := s.await(ctx, unlock, t.Timeout); err != nil && s.Err() == nil {
		return err
	}
	return nil
}

func (t *turn) OnEnd(f context.CancelCauseFunc) {
	s := t.queue.session
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
	s := t.queue.session
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return now.Add(s.window.Left(now))
}

// Done is closed when the turn no longer holds.
func (t *turn) Done() <-chan struct{} { return t.done }

// Err returns why the turn no longer holds, or has failed.
func (t *turn) Err() error {
	s := t.queue.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resignIfUntrusted()
	return t.err
}

// StopClock implements base.Grant.
func (t *turn) StopClock() {
	s := t.queue.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiry.Stop()
}
