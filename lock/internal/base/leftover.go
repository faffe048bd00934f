package base

import "sync"

// Leftover is what is left to be released, for which the next grant waits: a late request could otherwise end that, which the
// server gives to the same owner.
type Leftover struct {
	mu   sync.Mutex
	left chan struct{} // closed when nothing is left; nil if nothing was
}

// Pending returns what is closed when nothing is left.
func (l *Leftover) Pending() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == nil {
		l.left = make(chan struct{})
		close(l.left)
	}
	return l.left
}

// Leave runs a task that releases what is left.
func (l *Leftover) Leave(task func()) {
	left := make(chan struct{})
	l.mu.Lock()
	l.left = left
	l.mu.Unlock()
	go func() {
		defer close(left)
		task()
	}()
}
