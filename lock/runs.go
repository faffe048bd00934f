package lock

import (
	"errors"
	"os"
	"sync"
)

// ErrRunning is the error of Run while an earlier Run of the same runner has not returned.
var ErrRunning = errors.New("the runner runs already")

// errSignalled ends a run that has got a signal.
var errSignalled = errors.New("signalled")

// runs admits one run of a runner at a time.
type runs struct {
	mu      sync.Mutex
	running bool
	leftover
}

// begin begins a run. It waits until an earlier run has nothing left to release, which is
// bounded; a signal meanwhile is errSignalled. Whoever began a run ends it.
func (r *runs) begin(signals <-chan os.Signal) error {
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return ErrRunning
	}
	r.running = true
	r.mu.Unlock()
	select {
	case <-r.pending():
		return nil
	case <-signals:
		r.end()
		return errSignalled
	}
}

func (r *runs) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = false
}

// leftover is what is left to be released, for which the next grant waits: a late request could otherwise end that, which the
// server gives to the same owner.
type leftover struct {
	mu   sync.Mutex
	left chan struct{} // closed when nothing is left; nil if nothing was
}

// pending returns what is closed when nothing is left.
func (l *leftover) pending() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == nil {
		l.left = make(chan struct{})
		close(l.left)
	}
	return l.left
}

// leave runs a task that releases what is left.
func (l *leftover) leave(task func()) {
	left := make(chan struct{})
	l.mu.Lock()
	l.left = left
	l.mu.Unlock()
	go func() {
		defer close(left)
		task()
	}()
}
