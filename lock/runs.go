package lock

import (
	"context"
	"errors"
	"os"
)

// ErrRunning is the error of Run while an earlier Run of the same runner has not returned.
var ErrRunning = errors.New("the runner runs already")

// errSignalled is the cause of the end of a run that has got a signal.
var errSignalled = errors.New("signalled")

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
