// Package periodic runs work at an interval, as an ifrit runner; it pauses and wakes goroutines.
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

// New returns a runner that calls work at an interval, never twice at once. On a signal it cancels the context of the
// call under way, and waits for the call to return.
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
	return Until(signals, ready, r.repeat)
}

// Until is the Run of an ifrit runner that works until a signal. It closes ready and calls work. On a signal it cancels the context, and
// waits for work to return.
func Until(signals <-chan os.Signal, ready chan<- struct{}, work func(context.Context)) error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	close(ready)
	<-signals
	cancel()
	<-done
	return nil
}

// Pause waits for a time. If ctx ends first it returns the error of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// IsClosed reports whether a channel that carries no values is closed.
func IsClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// Wake puts a value into a channel that has room for one, unless the channel is full.
func Wake(channel chan<- struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

func (r Runner) repeat(ctx context.Context) {
	for pause := r.pause(); r.rest(ctx, pause); {
		begin := time.Now()
		r.work(ctx)
		pause = r.pause() - time.Since(begin)
	}
}

// rest waits until the next call is due. It reports whether the runner continues.
func (r Runner) rest(ctx context.Context, pause time.Duration) bool {
	if pause > 0 { // a timer that is due when it is set may crash Go's race detector in a bubble
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-timer.C:
		}
	}
	return ctx.Err() == nil
}
