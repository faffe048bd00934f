package lock

import "time"

// lease is a grant as its holder may trust it.
type lease struct {
	// token is the fencing token, 0 when there is no grant, or the server gives none.
	token uint64
	// until is the end of the trust, by the monotonic clock; zero when there is none.
	until time.Time
}

// margin is how long before the TTL is over a holder stops to believe: a twentieth of it,
// and 100 ms at least. It covers clocks that run at different rates, by much more than any
// do, and leaves the holder a moment to stop.
func margin(ttl time.Duration) time.Duration { return max(ttl/20, 100*time.Millisecond) }

// trusted reports whether the holder may believe that it holds.
func (l lease) trusted(now time.Time) bool { return now.Before(l.until) }
