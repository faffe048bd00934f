package lock

import (
	"errors"
	"os"
	"sync"

	"github.com/locket-service/locket/lock/internal/base"
)

// ErrRunning is the error of Run while an earlier Run of the same runner has not returned.
var ErrRunning = errors.New("the runner runs already")

// errSignalled ends a run that has got a signal.
var errSignalled = errors.New("signalled")

// runs admits one run of a runner at a time.
type runs struct {
	mu      sync.Mutex
	running bool
	base.Leftover
}

// begin begins a run. It waits until an earlier run has nothing left to release, which is
// bounded; a signal meanwhile is errSignalled. The caller that began a run ends it.
func (r *runs) begin(signals <-chan os.Signal) error {
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return ErrRunning
	}
	r.running = true
	r.mu.Unlock()
	select {
	case <-r.Pending():
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
