package stream

import (
	"cmp"
	"context"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
)

// commandHold is a lock that a session holds by its commands, for observers.
type commandHold struct {
	session  *Session
	resource string
	token    uint64
	ctx      context.Context
	end      context.CancelCauseFunc
}

var _ base.Hold = (*commandHold)(nil)

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
	h := &commandHold{session: s, resource: r.Resource, token: r.Token}
	h.ctx, h.end = context.WithCancelCause(context.Background())
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

func (h *commandHold) Token() uint64 { return h.token }

// Deadline implements base.Hold: the session's deadline applies.
func (h *commandHold) Deadline() time.Time { return h.session.deadline() }

func (h *commandHold) Check() { _ = h.session.Err() }

func (h *commandHold) Context() context.Context { return h.ctx }

func (h *commandHold) StopClock() { h.session.stopClock() }
