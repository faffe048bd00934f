package lock

import (
	"context"
	"time"
)

// Hold is a lock, or a claim, that is held: by calls that renew it, or by the session of a Client. Its methods may be
// called by any number of goroutines.
type Hold struct {
	lease leased
	ctx   *holdContext // it lasts as long as the hold
}

// leased is what a Hold stands for: a turn of a session, or a grant that a keeper renews. Its methods are those of Hold.
type leased interface {
	Token() uint64
	Deadline() time.Time
	Done() <-chan struct{}
	Err() error
	Release(ctx context.Context) error
	// whenOver has a function called once, with the error of the end.
	whenOver(f context.CancelCauseFunc)
}

// holder is a way of holding one lock: by calls of Lock, by calls of claims, or by the session of a Client.
type holder interface {
	// acquire waits for its turn, and returns when it holds the lock. The context bounds the wait only: when it is done,
	// acquire gives up what it may have, in bounded time. Any other error names the lock, and is one that another attempt would have too.
	acquire(ctx context.Context, o observer) (*Hold, error)
	// claimID is the id of the claim with which it waits or holds, or did last; "" for what has none.
	claimID() string
}

// observer hears what becomes of what is held.
type observer struct {
	// acquired is called when the lock is held, before acquire returns.
	acquired func(token uint64)
	// unverifiable and verified are called while it is held.
	unverifiable func(error)
	verified     func()
	// again is set if the lock is to be taken again after a loss, so that it is not to be released then.
	again bool
}

// newHold returns a Hold with the values of a context.
func newHold(ctx context.Context, l leased) *Hold {
	h := &Hold{lease: l}
	h.ctx = newHoldContext(context.WithoutCancel(ctx), h)
	l.whenOver(h.ctx.cancel)
	return h
}

// Context is done as soon as the lock is no longer held: context.Cause then says why, as Err does. It has the
// values of the context of Acquire, and not its end. Its Err and Done read the clock, as Hold.Err does: after a long pause
// they are right when they are called. A channel that was had from Done before the pause, and a context with an end of its
// own that is made of this one, are so when a timer has run, or anybody has asked the hold or this context.
func (h *Hold) Context() context.Context { return h.ctx }

// Token returns the fencing token of the grant. Goroutines that take over from each other within one
// session have the same one.
func (h *Hold) Token() uint64 { return h.lease.Token() }

// Deadline returns until when the lock is held if nothing renews it from now on: the end of the trust window.
func (h *Hold) Deadline() time.Time { return h.lease.Deadline() }

// Done is closed as soon as the lock is no longer held.
func (h *Hold) Done() <-chan struct{} { return h.lease.Done() }

// Err returns nil while the lock is held at this moment: it reads the clock, so it is right even in the first
// moment after a long pause. Then it is ErrReleased, or wraps ErrLost and the cause.
func (h *Hold) Err() error { return h.lease.Err() }

// Release gives the lock up: this very hold, and none that came after it. It returns when the server knows, or
// at once if another goroutine of the session takes over, or if the lock is not held any more. After an error,
// such as that of ctx, the release goes on in the background. To release again is no error.
func (h *Hold) Release(ctx context.Context) error { return h.lease.Release(ctx) }
