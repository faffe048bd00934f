package lock

import (
	"context"
	"slices"

	"github.com/locket-service/locket/lock/internal/base"
)

// Observer has functions that clients, sessions and runners call when something happens. Package lockmetrics makes
// metrics with it, locktrace spans. Any function may be nil. Goroutines that do the work call them, several at once,
// so they must return soon. SessionResumed and RenewalFailed must not call this package.
type Observer struct {
	// WaitBegins is called for each wait for a lock by Acquire, TryAcquire, a mutex, an election or a runner. Calls to
	// servers during the wait have the values of the returned context. The returned function is called with the hold,
	// or with the error of the wait.
	WaitBegins func(ctx context.Context, resource, owner string) (context.Context, func(*Hold, error))
	// Traceparent returns the trace that a context belongs to, in the format of the header traceparent (W3C Trace
	// Context), "" for none. A session sends it to the server with the command that waits. If there are several
	// observers, the first non-empty result counts.
	Traceparent func(ctx context.Context) string
	// SessionHeld is called when a session holds a lock by its commands (Session.Lock, TryLock), soon after the grant.
	// The hold ends with Unlock, UnlockAll, Close, or the loss. It is not called for locks held by Acquire, mutexes or
	// runners.
	SessionHeld func(*Hold)
	// SessionResumed is called when a session that had lost its stream has resumed over another one.
	SessionResumed func()
	// RenewalFailed is called when an attempt to renew a held lock, or to open or resume a session, has failed, or
	// when a server has not answered a heartbeat. The locks are held for the rest of the trust window.
	RenewalFailed func()
}

// WithObserver adds an observer of a client, a session or a runner. A runner on the session of a client also calls the
// observers of that client.
func WithObserver(observer Observer) Option {
	return func(s *settings) { s.observers = append(slices.Clip(s.observers), observer) }
}

// observers are all of a client or a runner.
type observers []Observer

// waitBegins tells that a wait begins. The function that it returns tells the end.
func (o observers) waitBegins(ctx context.Context, resource, owner string) (context.Context, func(*Hold, error)) {
	var ends []func(*Hold, error)
	for _, observer := range o {
		if observer.WaitBegins != nil {
			var end func(*Hold, error)
			ctx, end = observer.WaitBegins(ctx, resource, owner)
			ends = append(ends, end)
		}
	}
	return ctx, func(hold *Hold, err error) {
		for _, end := range ends {
			end(hold, err)
		}
	}
}

// traceparent returns the trace that a context belongs to, "" for none.
func (o observers) traceparent(ctx context.Context) string {
	for _, observer := range o {
		if observer.Traceparent == nil {
			continue
		}
		if of := observer.Traceparent(ctx); of != "" {
			return of
		}
	}
	return ""
}

// sessionResumed and renewalFailed tell what the rooms of this package see.
func (o observers) sessionResumed() {
	for _, observer := range o {
		if observer.SessionResumed != nil {
			observer.SessionResumed()
		}
	}
}

func (o observers) renewalFailed() {
	for _, observer := range o {
		if observer.RenewalFailed != nil {
			observer.RenewalFailed()
		}
	}
}

// sessionHeld returns a function that reports a lock held by a session's commands, nil if no observer wants it.
func (o observers) sessionHeld() func(base.Hold) {
	var callbacks []func(*Hold)
	for _, observer := range o {
		if observer.SessionHeld != nil {
			callbacks = append(callbacks, observer.SessionHeld)
		}
	}
	if len(callbacks) == 0 {
		return nil
	}
	return func(held base.Hold) {
		for _, tell := range callbacks {
			tell(&Hold{held})
		}
	}
}

// acquire waits until a holder holds a resource for an owner, and reports it.
func (o observers) acquire(ctx context.Context, resource, owner string, holder base.Holder, reports base.Observer) (hold *Hold, err error) {
	ended := func(*Hold, error) {}
	if len(o) > 0 {
		reports.CallValues, ended = o.waitBegins(ctx, resource, owner)
		reports.Traceparent = o.traceparent(reports.CallValues)
	}
	held, err := holder.Acquire(ctx, reports)
	if err == nil {
		hold = &Hold{held}
	}
	ended(hold, err)
	return hold, err
}
