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

// runs admits one run of a runner at a time, and none before the last one has released what it
// left: its late request could otherwise end a grant of the next run, which the server gives
// to the same owner.
type runs struct {
	mu      sync.Mutex
	running bool
	left    <-chan struct{} // closed when nothing is left; nil if nothing was
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
	left := r.left
	r.mu.Unlock()
	if left == nil {
		return nil
	}
	select {
	case <-left:
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

// leave runs a task that outlives the run under way, and that the next run waits for.
func (r *runs) leave(task func()) {
	left := make(chan struct{})
	r.mu.Lock()
	r.left = left
	r.mu.Unlock()
	go func() {
		defer close(left)
		task()
	}()
}
