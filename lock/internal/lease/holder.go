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
