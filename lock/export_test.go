package lock

// StopClock stops the timer that ends a trust window. This is the state of a process in the first moments after it was stopped: the
// clock has gone on, and no timer has run yet.
func StopClock(h *Hold) { h.held.StopClock() }

// HoldOf returns what a runner holds.
func HoldOf(r *Runner) *Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hold
}
