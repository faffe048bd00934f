// Package periodic runs a piece of work at an interval, as an ifrit runner.
package periodic

import (
	"context"
	"os"
	"time"
)

// Runner is an ifrit runner. It is ready at once, and returns nil on a signal.
type Runner struct {
	pause func() time.Duration
	wake  <-chan struct{}
	work  func(context.Context)
}

// New returns a runner that calls work at an interval, never twice at once. The context of
// a call that is under way ends on the signal, and the runner waits for the call to return.
func New(interval time.Duration, work func(context.Context)) Runner {
	return Paced(func() time.Duration { return interval }, nil, work)
}

// Paced is New with an interval that may change: pause returns the time until the next call
// begins, and a value from wake ends a pause early.
func Paced(pause func() time.Duration, wake <-chan struct{}, work func(context.Context)) Runner {
	return Runner{pause, wake, work}
}

// Run implements ifrit.Runner.
func (r Runner) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.repeat(ctx)
	}()
	close(ready)
	<-signals
	cancel()
	<-done
	return nil
}

func (r Runner) repeat(ctx context.Context) {
	timer := time.NewTimer(r.pause())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return
		}
		begin := time.Now()
		r.work(ctx)
		timer.Reset(max(0, r.pause()-time.Since(begin)))
	}
}
