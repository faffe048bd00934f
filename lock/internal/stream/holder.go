package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
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
	// RetryInterval is the pause before another attempt after an error that may be over by then; 0: there is none.
	RetryInterval time.Duration
	// ReleaseTimeout bounds how long Acquire waits for the servers to know that it has given up; 0: it does not wait.
	ReleaseTimeout time.Duration
	Log            *slog.Logger
}

// Acquire implements base.Holder.
func (h *Holder) Acquire(ctx context.Context, observer base.Observer) (base.Grant, error) {
	want := h.Want
	want.observer = &observer
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("lock %q: %w", h.Resource, err)
		}
		t, err := h.join(want)
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", h.Resource, err)
		}
		switch err = t.wait(ctx); {
		case err == nil:
			return t, nil
		case ctx.Err() != nil:
			h.giveUp(ctx, t)
			return nil, err
		case h.Pool != nil && isOver(t.queue.session.whether(ctx, err)):
			continue // with a new session
		case h.RetryInterval == 0 || !worthAnother(err):
			return nil, err
		}
		h.Log.Info("lock not acquired", "lock", h.Resource, "error", err)
		select {
		case <-time.After(base.Jittered(h.RetryInterval)):
		case <-ctx.Done():
		}
	}
}

func (h *Holder) join(want Want) (*turn, error) {
	if h.Pool == nil {
		return h.Session.join(h.Resource, want, h.Try), nil
	}
	return h.Pool.join(poolKey{ttl: h.TTL, owner: h.Owner}, h.Resource, want, h.Try)
}

// giveUp waits for the servers to know; it goes on in the background if it must.
func (h *Holder) giveUp(ctx context.Context, t *turn) {
	if h.ReleaseTimeout > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.ReleaseTimeout)
		defer cancel()
		_ = t.Release(ctx)
	}
}

// ClaimID implements base.Holder.
func (h *Holder) ClaimID() string { return "" }

// isOver reports whether a session was lost, so that another one may fare better.
func isOver(err error) bool {
	return errors.Is(err, base.ErrSessionEnded) || errors.Is(err, base.ErrTimeUp)
}

// worthAnother reports whether another attempt may succeed where one has failed with err.
func worthAnother(err error) bool {
	return base.Classify(err) == base.Unclear && !errors.Is(err, base.ErrClosed) && !errors.As(err, new(base.ClaimEndedError))
}
