package lock

import "math"

// StopClock has no timer end a trust window: as in the first moments after a process was stopped, when the clock has gone on
// and no timer has run yet.
func StopClock(h *Hold) {
	switch l := h.lease.(type) {
	case *turn:
		s := l.gate.session
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expiry.Stop()
	case *keeper:
		l.expiry.Stop()
		l.next.Reset(math.MaxInt64)
	}
}

// HoldOf returns what a runner holds.
func HoldOf(r *Runner) *Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hold
}
