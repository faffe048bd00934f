package lock

import "github.com/locket-service/locket/lock/internal/stream"

// KeepUnused is how long a session beside a client's own stays open when nobody uses it.
const KeepUnused = stream.KeepUnused

// StopClock stops the timer that ends a trust window. This is the state of a process in the first moments after it
// was stopped: the clock has advanced, and no timer has run yet.
func StopClock(h *Hold) { h.held.StopClock() }

func HoldOf(r *Runner) *Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hold
}
