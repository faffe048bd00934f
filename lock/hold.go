package lock

import (
	"context"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
)

// Hold is a lock, or a claim, that is held: by calls that renew it, or by the session of a Client. Its methods may be
// called by any number of goroutines. The Hold of a presence lasts until it is released: WithPresence says how.
type Hold struct{ held base.Hold }

// Context is done as soon as the lock is no longer held: context.Cause then says why, as Err does. It has the
// values of the context of Acquire, and not its end. Its Err and Done read the clock, as Hold.Err does: after a long pause
// they are right when they are called. A channel from an earlier call of Done, and contexts derived from this one,
// follow when a timer has run, or anybody has asked the hold or this context.
func (h *Hold) Context() context.Context { return holdContext{h.held.Context(), h.held.Check} }

// Token returns the fencing token of the grant. Goroutines that take over from each other within one
// session have the same one.
func (h *Hold) Token() uint64 { return h.held.Token() }

// Deadline returns until when the lock is held if nothing renews it from now on: the end of the trust window.
func (h *Hold) Deadline() time.Time { return h.held.Deadline() }

// Done is closed as soon as the lock is no longer held.
func (h *Hold) Done() <-chan struct{} { return h.held.Context().Done() }

// Err returns nil while the lock is held at this moment: it reads the clock, so it is right even in the first
// moment after a long pause. Then it is ErrReleased, or wraps ErrLost and the cause.
func (h *Hold) Err() error {
	h.held.Check()
	return context.Cause(h.held.Context())
}

// Release gives up this hold, and no later one. It returns when the server knows, or at once if another goroutine of
// the session takes over, or if the lock is not held any more. After an error, such as the end of ctx, the release
// continues in the background. Releasing twice is not an error.
func (h *Hold) Release(ctx context.Context) error { return h.held.Release(ctx) }

// heldBy returns the fencing token of a hold, and whether it is held at this moment. Nil holds nothing.
func heldBy(hold *Hold) (token uint64, held bool) {
	if hold == nil || hold.Err() != nil {
		return 0, false
	}
	return hold.Token(), true
}

// holdContext is a context that may end with a lock. Err and Done read the clock, so they are right before any timer
// has run. Contexts derived from it end with it, but do not read the clock.
type holdContext struct {
	context.Context
	// check ends the Context if the lock is no longer held.
	check func()
}

// Done implements context.Context.
func (c holdContext) Done() <-chan struct{} {
	c.check()
	return c.Context.Done()
}

// Err implements context.Context.
func (c holdContext) Err() error {
	c.check()
	return c.Context.Err()
}
