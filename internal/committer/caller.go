package committer

import (
	"context"

	"github.com/locket-service/locket/internal/claim"
)

type callerKey struct{}

// WithCaller returns a context whose commands are those of a caller.
func WithCaller(ctx context.Context, caller claim.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// CallerOf returns the caller of a context, an empty one if it has none.
func CallerOf(ctx context.Context) claim.Caller {
	caller, _ := ctx.Value(callerKey{}).(claim.Caller)
	return caller
}
