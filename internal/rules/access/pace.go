package access

import "context"

type paceKey struct{}

// WithPace returns a context for a stream with a limited rate of commands. pace waits until one more is allowed, and
// returns ctx's error.
func WithPace(ctx context.Context, pace func(ctx context.Context) error) context.Context {
	return context.WithValue(ctx, paceKey{}, pace)
}

// PaceOf returns the function of WithPace, nil for a caller who does not have to wait.
func PaceOf(ctx context.Context) func(ctx context.Context) error {
	pace, _ := ctx.Value(paceKey{}).(func(context.Context) error)
	return pace
}
