package lock

import (
	"context"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
)

// Hold is a lock, or a claim, that is held: by calls that renew it, or by the session of a Client. Its methods may be
// called by any number of goroutines.
type Hold struct {
	grant base.Grant
	ctx   *holdContext // it lasts as long as the hold
}

// newHold returns a Hold with the values of a context.
func newHold(ctx context.Context, grant base.Grant) *Hold {
	h := &Hold{grant: grant}
	h.ctx = newHoldContext(context.WithoutCancel(ctx), h)
	grant.OnEnd(h.ctx.cancel)
	return h
}

// acquire waits until a holder holds.
func acquire(ctx context.Context, holder base.Holder, observer base.Observer) (*Hold, error) {
	grant, err := holder.Acquire(ctx, observer)
	if err != nil {
		return nil, err
	}
	return newHold(ctx, grant), nil
}

// Context is done as soon as the lock is no longer held: context.Cause then says why, as Err does. It has the
// values of the context of Acquire, and not its end. Its Err and Done read the clock, as Hold.Err does: after a long pause
// they are right when they are called. A channel that was had from Done before the pause, and a context with an end of its
// own that is made of this one, are so when a timer has run, or anybody has asked the hold or this context.
func (h *Hold) Context() context.Context { return h.ctx }

// Token returns the fencing token of the grant. Goroutines that take over from each other within one
// session have the same one.
func (h *Hold) Token() uint64 { return h.grant.Token() }

// Deadline returns until when the lock is held if nothing renews it from now on: the end of the trust window.
func (h *Hold) Deadline() time.Time { return h.grant.Deadline() }

// Done is closed as soon as the lock is no longer held.
func (h *Hold) Done() <-chan struct{} { return h.grant.Done() }

// Err returns nil while the lock is held at this moment: it reads the clock, so it is right even in the first
// moment after a long pause. Then it is ErrReleased, or wraps ErrLost and the cause.
func (h *Hold) Err() error { return h.grant.Err() }

// Release gives the lock up: this very hold, and none that came after it. It returns when the server knows, or
// at once if another goroutine of the session takes over, or if the lock is not held any more. After an error,
// such as that of ctx, the release goes on in the background. To release again is no error.
func (h *Hold) Release(ctx context.Context) error { return h.grant.Release(ctx) }
