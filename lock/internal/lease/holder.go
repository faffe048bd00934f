// Package lease holds a lock by calls that renew it: calls of Lock, or of claims. One loop (hold.go) makes both
// (interface calls).
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
)

// Holder holds by calls. It is for one goroutine, except ClaimID.
type Holder struct {
	base.Settings
	key, owner string
	// calls are for the next hold, last is the one before, and pending its releases under way.
	calls   calls
	last    *hold
	pending base.PendingRelease

	id atomic.Value // of the claim, a string
}

func newHolder(settings base.Settings, key, owner string, calls calls) *Holder {
	return &Holder{Settings: settings, key: key, owner: owner, calls: calls}
}

// Acquire implements base.Holder.
func (o *Holder) Acquire(ctx context.Context, observer base.Observer) (base.Hold, error) {
	if ctx.Err() != nil {
		o.abandon()
		return nil, ctx.Err()
	}
	if o.last != nil {
		select {
		case <-o.last.gone:
			o.calls = o.last.calls.next()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case <-o.pending.Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h := o.newHold(ctx, observer)
	o.last = h
	go h.run()
	select {
	case <-h.acquired:
		return h, nil
	case <-h.gone:
		if h.held { // and lost at once
			return h, nil
		}
		return nil, fmt.Errorf("lock %q: %w", o.key, context.Cause(h.ctx))
	case <-ctx.Done():
		h.leave()
		<-h.gone
		return nil, ctx.Err()
	}
}

// abandon releases in the background what the servers may still have of a lost hold, when no other hold will follow.
func (o *Holder) abandon() {
	if last := o.last; last != nil && last.observer.Again && errors.Is(context.Cause(last.ctx), base.ErrLost) {
		select {
		case <-last.gone:
			last.releaseLater(0)
		case <-time.After(o.ReleaseTimeout):
		}
	}
}

func (o *Holder) ClaimID() string {
	id, _ := o.id.Load().(string)
	return id
}

// calls are the requests that take, renew and release a lock: by Lock, or by claims.
type calls interface {
	// take gains the grant, or, with its token, renews it. It returns the token, and how long the grant lasts from the
	// server's answer. When leave is done, it stops waiting in the queue. It calls waiting when others come first.
	take(ctx, leave context.Context, token uint64, waiting func(holder string)) (uint64, time.Duration, error)
	// release ends the grant with a token; with 0, any grant that take may have left.
	release(ctx context.Context, token uint64) error
	// exact reports whether release with a token can end only this grant.
	exact(token uint64) bool
	// watch returns how the grant with a token has ended, as soon as that is known without a renewal. It returns nil
	// when the context is done, or if only a renewal can show it. It may call look to request a renewal now.
	watch(ctx context.Context, token uint64, look func()) error
	// why returns how a missing grant with a token has ended, after a renewal has failed; nil when the server does not
	// say.
	why(ctx context.Context, token uint64) error
	// timeout is how long one call of take may last.
	timeout(token uint64) time.Duration
	// classify returns the meaning of an error from take or release.
	classify(err error) base.Verdict
	// next returns the calls of the next hold, or of the next attempt after base.Missed.
	next() calls
	// id is the claim's id, "" for a lock.
	id() string
}
