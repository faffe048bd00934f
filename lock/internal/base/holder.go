// Package base has the parts that all ways of holding a lock share: settings, errors, the classification of answers,
// and the interface of a Holder.
package base

import (
	"context"
	"sync"
	"time"

	"github.com/locket-service/locket/internal/base/inbox"
)

// Holder is a way to hold one lock: by calls of Lock, by calls of claims, or by a session.
type Holder interface {
	// Acquire waits in the queue, and returns when it holds the lock. The end of the context ends the wait only:
	// Acquire then releases what it may have, in bounded time. Any other error names the lock, and is permanent.
	Acquire(ctx context.Context, observer Observer) (Hold, error)
	// ClaimID is the id of the current or last claim; "" if there is none.
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
	// StopClock stops the timer that ends the trust window. It is for tests: after a pause of the process no timer
	// has run yet.
	StopClock()
}

// Callbacks are lock.Callbacks, which documents them.
type Callbacks struct {
	Waiting      func(holder string)
	Renewed      func(sent time.Time, lasts time.Duration)
	Acquired     func(token uint64)
	Unverifiable func(error)
	Verified     func()
	Lost         func(error)
	Refused      func(error)
}

// Observer calls callbacks. A Holder calls all of them except Lost and Refused.
type Observer struct {
	Callbacks
	Calls *inbox.Inbox
	// Again is set if the lock will be taken again after a loss, so it must not be released then.
	Again bool
	// CallValues has the context values for the calls of the wait; nil for none.
	CallValues context.Context
	// Traceparent is the trace of the wait, for the commands of a session; "" for none.
	Traceparent string
}

// Tell calls a callback if it is set.
func Tell[T any](calls *inbox.Inbox, callback func(T), what T) {
	if callback != nil {
		calls.Put(func() { callback(what) })
	}
}

// TellRenewed calls Renewed if it is set.
func (o *Observer) TellRenewed(sent time.Time, lasts time.Duration) {
	if o.Renewed != nil {
		o.Calls.Put(func() { o.Renewed(sent, lasts) })
	}
}

// TellVerified calls Verified if it is set.
func (o *Observer) TellVerified() {
	if o.Verified != nil {
		o.Calls.Put(o.Verified)
	}
}

// PendingRelease is a release in the background. The next grant waits for it: a late request could otherwise end that grant, which
// the server gives to the same owner.
type PendingRelease struct {
	mu   sync.Mutex
	done chan struct{} // nil if none was begun
}

// Done returns a channel that is closed when no release is under way.
func (p *PendingRelease) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = make(chan struct{})
		close(p.done)
	}
	return p.done
}

// Start runs a release.
func (p *PendingRelease) Start(release func()) {
	done := make(chan struct{})
	p.mu.Lock()
	p.done = done
	p.mu.Unlock()
	go func() {
		defer close(done)
		release()
	}()
}
