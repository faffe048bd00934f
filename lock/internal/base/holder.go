package base

import (
	"context"
	"time"
)

// Holder is a way to hold one lock: by calls of Lock, by calls of claims, or by a session.
type Holder interface {
	// Acquire waits in the queue, and returns when it holds the lock. The end of the context ends the wait only: then
	// Acquire gives up what it may have, in bounded time. Any other error names the lock, and another attempt would have it too.
	Acquire(ctx context.Context, observer Observer) (Hold, error)
	// ClaimID is the id of the claim with which it waits or holds, or did last; "" if there is none.
	ClaimID() string
}

// Hold is a lock that is held; lock.Hold documents it.
type Hold interface {
	Token() uint64
	Deadline() time.Time
	// Check ends the hold if its trust window has ended: it reads the clock.
	Check()
	// Context has the values of the context of Acquire, and ends with the hold. Its cause is the error of the end.
	Context() context.Context
	Release(ctx context.Context) error
	// StopClock stops the timer that ends the trust window. It is for tests: so are the first moments after a process was stopped.
	StopClock()
}

// Observer is notified of what happens to a lock. Each function may be nil; none may wait.
type Observer struct {
	// Waiting is called when a server has answered that others come first. It gets the owner that holds the lock, "" if the server
	// does not name it.
	Waiting func(holder string)
	// Acquired is called when the lock is held, before Acquire returns.
	Acquired func(token uint64)
	// Renewed is called for the gain, before Acquired, and for each renewal: when it was sent, and for how long from then on the server lets the lock last.
	Renewed func(sent time.Time, lasts time.Duration)
	// Unverifiable and Verified are called while the lock is held.
	Unverifiable func(error)
	Verified     func()
	// Again is set if the lock is to be taken again after a loss, so that it is not to be released then.
	Again bool
}

// Tell calls one of the functions, if it is set.
func Tell[T any](f func(T), what T) {
	if f != nil {
		f(what)
	}
}
