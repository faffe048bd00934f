package lock

import (
	"context"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
)

// Hold is a lock or a claim that is held. Its methods may be called by any number of goroutines. The Hold of a
// presence lasts until it is released; see WithPresence.
type Hold struct{ held base.Hold }

// Context returns a context that ends as soon as the lock is no longer held; context.Cause then returns the same as
// Err. It has the values of the context given to Acquire, but does not end with it. Its Err and Done read the clock
// when they are called, so they are right even after a long pause. Contexts derived from it, and channels of earlier
// calls of Done, end a moment later, when a timer has run.
func (h *Hold) Context() context.Context { return holdContext{h.held.Context(), h.held.Check} }

// Token returns the fencing token of the grant. Goroutines of one session that take over from each other get the same
// token.
func (h *Hold) Token() uint64 { return h.held.Token() }

// Deadline returns the end of the trust window: the lock is held until then if no renewal succeeds.
func (h *Hold) Deadline() time.Time { return h.held.Deadline() }

// Done returns a channel that is closed as soon as the lock is no longer held.
func (h *Hold) Done() <-chan struct{} { return h.held.Context().Done() }

// Err returns nil while the lock is held, otherwise ErrReleased or an error that wraps ErrLost and the cause. It reads
// the clock, so it is right even after a long pause.
func (h *Hold) Err() error {
	h.held.Check()
	return context.Cause(h.held.Context())
}

// Release releases this hold, and never a later one. It returns when the server has released the lock, or at once if
// another goroutine of the session takes over or the lock is not held any more. After an error, such as the end of
// ctx, the release continues in the background. Releasing twice is not an error.
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

func (c holdContext) Err() error {
	c.check()
	return c.Context.Err()
}
