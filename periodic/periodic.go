// Package periodic runs a piece of work at an interval, as an ifrit runner.
package periodic

import (
	"context"
	"os"
	"time"
)

// Runner is an ifrit runner. It is ready at once, and returns nil on a signal.
type Runner struct {
	interval time.Duration
	work     func(context.Context)
}

// New returns a runner that calls work at an interval, never twice at once. The context of
// a call that is under way ends on the signal, and the runner waits for
// the call to return.
func New(interval time.Duration, work func(context.Context)) Runner {
	return Runner{interval, work}
}

// Run implements ifrit.Runner.
func (r Runner) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(r.interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				r.work(ctx)
			}
		}
	}()
	close(ready)
	<-signals
	cancel()
	<-done
	return nil
}
