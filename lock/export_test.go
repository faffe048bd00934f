package lock

// StopClock has no timer end a trust window: as in the first moments after a process was stopped, when the clock has gone on
// and no timer has run yet.
func StopClock(h *Hold) {
	s := h.lease.(*turn).gate.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiry.Stop()
}
