package base

import (
	"context"
	"time"
)

// Holder is a way of holding one lock: by calls of Lock, by calls of claims, or by a session.
type Holder interface {
	// Acquire waits for its turn, and returns when it holds the lock. The context bounds the wait only: when it is done,
	// Acquire gives up what it may have, in bounded time. Any other error names the lock, and another attempt would have it too.
	Acquire(ctx context.Context, observer Observer) (Grant, error)
	// ClaimID is the id of the claim with which it waits or holds, or did last; "" if there is none.
	ClaimID() string
}

// Grant is a lock that is held. Its methods are those of lock.Hold, which documents them.
type Grant interface {
	Token() uint64
	Deadline() time.Time
	Done() <-chan struct{}
	Err() error
	Release(ctx context.Context) error
	// OnEnd has a function called once, with the error of the end.
	OnEnd(f context.CancelCauseFunc)
	// StopClock has no timer end the trust window from now on. It is for tests: so are the first moments after a process was stopped.
	StopClock()
}

// Observer is notified of what becomes of a lock. Each function may be nil; none may wait.
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
