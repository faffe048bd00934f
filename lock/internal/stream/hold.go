package stream

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// heldLock is a lock that a session holds. It implements base.Hold except Release.
type heldLock struct {
	session *Session
	token   uint64
	// ctx is done when the lock was refused, or is over. Its cause is the reason.
	ctx context.Context
	end context.CancelCauseFunc
}

func newHeldLock(ctx context.Context, session *Session, token uint64) heldLock {
	l := heldLock{session: session, token: token}
	l.ctx, l.end = context.WithCancelCause(ctx)
	return l
}

func (l *heldLock) Token() uint64 { return l.token }

// Deadline implements base.Hold: the session's deadline applies.
func (l *heldLock) Deadline() time.Time {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	now := time.Now()
	return now.Add(l.session.window.Left(now))
}

func (l *heldLock) Check() { _ = l.session.Err() }

func (l *heldLock) Context() context.Context { return l.ctx }

func (l *heldLock) StopClock() {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	l.session.expiry.Stop()
}

// hold is one goroutine's hold by a session, from joining the queue until it is over. The session's lock guards it.
type hold struct {
	Want
	heldLock
	key   string
	try   bool
	queue *queue
	// started is when it joined.
	started time.Time

	// decided is closed when the lock was granted or refused.
	decided chan struct{}
	// unlock is the command that released the session's claim with this hold; nil if others took over.
	unlock *command
}

func newHold(ctx context.Context, key string, want Want, try bool) *hold {
	lock := newHeldLock(context.WithoutCancel(ctx), nil, 0)
	return &hold{Want: want, heldLock: lock, key: key, try: try, started: time.Now(), decided: make(chan struct{})}
}

// grant ends the wait with the lock.
func (h *hold) grant(token uint64) {
	h.token = token
	s := h.session
	s.renewed(h.observer)
	base.Tell(h.observer.Calls, h.observer.Acquired, token)
	if s.isOverdue {
		base.Tell(h.observer.Calls, h.observer.Unverifiable, s.unverified())
	}
	close(h.decided)
}

// waits reports to its observer that others come first.
func (h *hold) waits() {
	base.Tell(h.observer.Calls, h.observer.Waiting, "")
}

// fail ends the wait without the lock.
func (h *hold) fail(err error) {
	h.end(fmt.Errorf("lock %q: %w", h.key, err))
	close(h.decided)
}

// join adds a hold to the queue of its resource. It returns false if all holds there share the resource by other
// claims, unless must is set.
func (s *Session) join(h *hold, must bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[h.key]; q != nil && !must && q.differs(&h.Want) {
		return false
	}
	s.resignIfUntrusted()
	h.session, h.queue = s, s.queueOf(h.key)
	if s.err != nil {
		h.fail(s.err)
	} else {
		h.queue.join(h)
	}
	h.queue.forget()
	return true
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

// wait returns when the lock is held. If it returns an error, the hold has left the queue.
func (h *hold) wait(ctx context.Context) error {
	var timer *time.Timer
	var tooLong <-chan time.Time
	if h.Timeout > 0 {
		timer = time.NewTimer(h.Timeout)
		defer timer.Stop()
		tooLong = timer.C
	}
	for {
		select {
		case <-h.decided:
			if h.Check(); h.ctx.Err() == nil {
				return nil
			}
			return h.abandon(nil)
		case <-ctx.Done():
			return h.abandon(ctx.Err())
		case <-tooLong:
			left := h.unanswered()
			if left <= 0 {
				return h.abandon(base.ErrTimeout)
			}
			timer.Reset(left)
		}
	}
}

// unanswered returns the rest of the timeout of the command under way; a try is one.
func (h *hold) unanswered() time.Duration {
	s := h.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.try {
		return h.Timeout - time.Since(h.started)
	}
	if c := h.queue.command; c != nil {
		return h.Timeout - time.Since(c.started)
	}
	return h.Timeout
}

// abandon leaves the queue, or releases the lock if it was granted at this moment. It returns cause, or the earlier
// cause of the hold's end.
func (h *hold) abandon(cause error) error {
	s := h.session
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-h.decided:
		err := context.Cause(h.ctx)
		h.queue.release(h, cause) // lost holds too, because they exclude others until they are released
		if err != nil {
			return err
		}
	default:
		h.queue.leave(h)
	}
	return fmt.Errorf("lock %q: %w", h.key, s.failedWait(cause))
}

// Release implements base.Hold. It also ends a wait.
func (h *hold) Release(ctx context.Context) error {
	s := h.session
	s.mu.Lock()
	s.resignIfUntrusted()
	select {
	case <-h.decided:
		h.queue.release(h, base.ErrReleased)
	default:
		h.fail(base.ErrReleased)
		h.queue.leave(h)
	}
	unlock := h.unlock
	s.mu.Unlock()
	if unlock == nil {
		return nil
	}
	if _, err := s.await(ctx, unlock, h.Timeout); err != nil && s.Err() == nil {
		return err
	}
	return nil
}

// commandHold is a lock that a session holds by its commands, for observers.
type commandHold struct {
	heldLock
	resource string
}

// held notifies observers that the session has begun to hold a resource, unless goroutines have asked for it (hold), or
// ends their last hold. The caller has the lock.
func (s *Session) held(r *record, byQueue bool) {
	if r.hold != nil {
		r.hold.end(cmp.Or(r.Cause, base.ErrReleased))
		r.hold = nil
	}
	if r.Current != Holding || byQueue || s.SessionHeld == nil {
		return
	}
	h := &commandHold{newHeldLock(context.Background(), s, r.Token), r.Resource}
	r.hold = h
	s.observed.Put(func() { s.SessionHeld(h) })
}

func (h *commandHold) Release(ctx context.Context) error {
	if h.Check(); h.ctx.Err() != nil {
		return nil
	}
	_, err := h.session.do(ctx, unlockCommand(h.resource, &h.token))
	return err
}

// Want describes a requested lock.
type Want struct {
	Mode          models.Mode
	Value         string
	TypeCode      models.TypeCode
	AllowDeadlock bool
	UserData      *string
	// Alone, if it is set, identifies a claim that is not shared with other goroutines. Different pointers mean
	// different claims.
	Alone *byte

	// TTL selects the session; 0 is the usual one.
	TTL time.Duration
	// Timeout bounds the commands, if it is not 0.
	Timeout time.Duration
	// ExcludesAfterLoss is set if the hold excludes other goroutines of the session until it is released, even after
	// the session has lost it.
	ExcludesAfterLoss bool
	// Watcher, unless it is nil, is notified when the session loses the lock.
	Watcher *Watcher

	observer *base.Observer
}

func (a *Want) shared() bool { return a.Mode == models.Mode_MODE_SHARED }

// same reports whether a claim made for other would also serve a. Whether they allow deadlocks does not matter.
func (a *Want) same(other *Want) bool {
	return a.Mode == other.Mode && a.Value == other.Value && a.TypeCode == other.TypeCode && a.Alone == other.Alone &&
		(a.UserData == nil) == (other.UserData == nil) && (a.UserData == nil || *a.UserData == *other.UserData)
}

// joins reports whether the lock may be held together with others, by the claim that they have requested.
func (a *Want) joins(other *Want) bool { return a.shared() && a.same(other) }
