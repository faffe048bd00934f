package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// Holder holds a resource by the sessions of a Pool, or by one Session.
type Holder struct {
	// Pool has the sessions: TTL and Owner choose one. Without a pool it is Session.
	Pool    *Pool
	TTL     time.Duration
	Owner   string
	Session *Session

	Resource string
	Want     Want
	// Try fails instead of waiting for others.
	Try bool
	// RetryInterval is the pause before another attempt after a temporary error; 0: no other attempt.
	RetryInterval time.Duration
	// ReleaseTimeout bounds how long Acquire waits for the servers to know that it has given up; 0: it does not wait.
	ReleaseTimeout time.Duration
	Log            *slog.Logger
}

// Acquire implements base.Holder.
func (o *Holder) Acquire(ctx context.Context, observer base.Observer) (base.Hold, error) {
	want := o.Want
	want.observer = &observer
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("lock %q: %w", o.Resource, err)
		}
		h := newHold(ctx, o.Resource, want, o.Try)
		if err := o.join(h); err != nil {
			return nil, fmt.Errorf("lock %q: %w", o.Resource, err)
		}
		err := h.wait(ctx)
		switch {
		case err == nil:
			return h, nil
		case ctx.Err() != nil:
			o.giveUp(ctx, h)
			return nil, err
		case o.Pool != nil && isOver(h.session.endAfter(ctx, err)):
			continue // with a new session
		case o.RetryInterval == 0 || !worthAnother(err):
			return nil, err
		}
		o.Log.Info("lock not acquired", "lock", o.Resource, "error", err)
		_ = periodic.Pause(ctx, base.Jittered(o.RetryInterval))
	}
}

func (o *Holder) join(h *hold) error {
	if o.Pool == nil {
		o.Session.join(h, true)
		return nil
	}
	return o.Pool.join(poolKey{ttl: o.TTL, owner: o.Owner}, h)
}

// giveUp waits until the servers know, or continues in the background.
func (o *Holder) giveUp(ctx context.Context, h *hold) {
	if o.ReleaseTimeout > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.ReleaseTimeout)
		defer cancel()
		_ = h.Release(ctx)
	}
}

func (*Holder) ClaimID() string { return "" }

// isOver reports whether a session was lost, so that another one may succeed.
func isOver(err error) bool {
	return errors.Is(err, base.ErrSessionEnded) || errors.Is(err, base.ErrTimeUp)
}

// worthAnother reports whether another attempt may succeed after one failed with err.
func worthAnother(err error) bool {
	return base.Classify(err) == base.Unclear && !errors.Is(err, base.ErrClosed) && !errors.As(err, new(models.ClaimEndedError))
}
