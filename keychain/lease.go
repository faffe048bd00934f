package keychain

import "time"

// lease is how long a claim may be trusted to be ours.
type lease struct {
	// since is when it began, at the latest; by the monotonic clock.
	since time.Time
	// until is the end of the trust; zero when there is none.
	until time.Time
}

// margin is how long before the TTL is over a holder stops to believe: a twentieth of it,
// and 100 ms at least. It covers clocks that run at different rates, by much more than any
// do, and leaves the holder a moment to stop.
func margin(ttl time.Duration) time.Duration { return max(ttl/20, 100*time.Millisecond) }

// leaseFrom returns a lease that begins at a moment at which the server had not begun it yet.
func leaseFrom(since time.Time, ttl time.Duration) lease {
	return lease{since, since.Add(ttl - margin(ttl))}
}

// trusted reports whether the holder may believe that it holds.
func (l lease) trusted(now time.Time) bool { return now.Before(l.until) }

// young reports whether more than half of it is left.
func (l lease) young(now time.Time) bool { return now.Sub(l.since) < l.until.Sub(now) }
