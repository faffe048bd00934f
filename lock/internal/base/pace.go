package base

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/base/lease"
)

// Backoff is how long to pause between consecutive attempts.
var Backoff = lease.Backoff{First: 50 * time.Millisecond, Max: MaxAttempt, Factor: 2, Jitter: lease.Jitter}

// Jittered returns a pause that is shortened at random.
func Jittered(pause time.Duration) time.Duration { return lease.Jittered(pause, lease.Jitter) }

// WithRequestID gives a request an id, which the server logs.
func WithRequestID(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "uuid", ids.NewRequest())
}
