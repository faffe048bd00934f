package base

import "sync"

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
