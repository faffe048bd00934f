package lock

import (
	"context"
	"errors"
	"os"
	"sync"
)

// ErrRunning is the error of Run while an earlier Run of the same runner has not returned.
var ErrRunning = errors.New("the runner runs already")

// errSignalled is the cause of the end of a run that has got a signal.
var errSignalled = errors.New("signalled")

// runs admits one run of a runner at a time.
type runs struct {
	mu      sync.Mutex
	running bool
}

// begin begins a run. The caller that began a run ends it.
func (r *runs) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return ErrRunning
	}
	r.running = true
	return nil
}

func (r *runs) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = false
}

// untilSignal returns a context that ends with the first signal.
func untilSignal(signals <-chan os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		select {
		case <-signals:
			cancel(errSignalled)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
