// Package lease computes the client's trust window of a lease: for how long the holder of a lock may act on it without
// hearing from the server. It also computes the pauses between attempts (Backoff). Package lock, package keychain and
// locket run use it.
//
// A server that grants or renews a lease promises to grant the resource to nobody else before the TTL has passed. It
// counts from when it received the request, which is after the client sent it. The client therefore counts from when it
// sent the request, and stops a margin earlier:
//
//	client  sent ──────────────── trust window ───────────────┤ margin ├
//	             server  took the request ───────────── TTL ──────────────────┤
//
// So the client's window always ends before the server's lease, however long the request or its answer took, and the
// windows of two clients never overlap. The clocks of the two need not agree on the time; they only need to run at
// about the same rate, and the margin covers the difference.
//
// The rule comes from Gray and Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache
// Consistency" (SOSP 1989, https://doi.org/10.1145/74850.74870), where the client's term is shortened by the
// transmission time and an allowance for clocks. River's leader election also trusts its term from the start of the
// last successful attempt (https://github.com/riverqueue/river/blob/master/internal/leadership/doc.go).
package lease

import (
	"math"
	"math/rand/v2"
	"time"
)

// minMargin is the minimum margin, whatever the TTL.
const minMargin = 100 * time.Millisecond

// Margin returns how long before the end of a lease of ttl its holder stops trusting it: a twentieth of the TTL, and at
// least 100 ms. It covers clocks that run at different rates, with much reserve, and leaves the holder time to stop.
func Margin(ttl time.Duration) time.Duration { return max(ttl/20, minMargin) }

// KillMargin returns how long before the end of a lease of ttl a process that works under it must be killed from
// outside: a tenth of the TTL, and at least 100 ms. It is never less than Margin, because a kill takes time on a
// machine under load.
func KillMargin(ttl time.Duration) time.Duration { return max(ttl/10, minMargin) }

// Window is a trust window: while it lasts, the holder of a lease may act on it without hearing from the server. The
// zero Window belongs to no lease, and is never trusted.
//
// Windows use Go's monotonic clock, so steps of the wall clock do not change them if the given times are from time.Now.
// On Linux that clock stands still while a machine is suspended; only a fencing token protects what is done right after
// it wakes up.
type Window struct{ since, until time.Time }

// WithMargin returns the window of a lease that a request, sent at that time, has granted, renewed or found: only left of
// it remained when the server answered. The margin must not be less than Margin of the whole TTL; a holder that needs more
// time to stop gives more. If left is not longer than the margin, the window has ended already; a negative left counts
// as 0, because the difference of a very small one and the margin would overflow.
func WithMargin(sent time.Time, left, margin time.Duration) Window {
	return Window{since: sent, until: sent.Add(max(left, 0) - margin)}
}

// Trusted reports whether the holder may still act on the lease.
func (w Window) Trusted(now time.Time) bool { return now.Before(w.until) }

// Left returns for how long the lease may still be trusted, 0 if it may not.
func (w Window) Left(now time.Time) time.Duration {
	if !w.Trusted(now) {
		return 0
	}
	return w.until.Sub(now)
}

// HalfLeft reports whether more than half of the window is left.
func (w Window) HalfLeft(now time.Time) bool { return now.Sub(w.since) < w.until.Sub(now) }

// Since returns when the request that started the window was sent. It is the zero time for the zero Window.
func (w Window) Since() time.Time { return w.since }

// IsZero reports whether there is no lease.
func (w Window) IsZero() bool { return w.until.IsZero() }

// Jitter is the largest fraction taken off a pause before a renewal or a retry, so that clients that started together
// do not come back together.
const Jitter = 0.2

// Backoff is how long to pause between consecutive attempts.
type Backoff struct {
	// First is the pause after the first attempt, Max the longest.
	First, Max time.Duration
	// Factor is how much longer each pause is than the one before.
	Factor float64
	// Jitter is the largest fraction taken off a pause, at random, 0 to 1; a negative one is 0.
	Jitter float64
}

// Pause returns how long to pause after a number of attempts, 1 or more. It is never longer than limit.
func (b Backoff) Pause(attempts int, limit time.Duration) time.Duration {
	pause := min(float64(b.First)*math.Pow(b.Factor, float64(attempts-1)), float64(b.Max), float64(limit))
	return Jittered(time.Duration(pause), b.Jitter)
}

// Jittered returns a pause that is shortened at random, by a fraction of itself at most.
func Jittered(pause time.Duration, fraction float64) time.Duration {
	return pause - time.Duration(rand.Float64()*max(0, fraction)*float64(pause))
}
