package base

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/internal/ids"
)

const (
	// FirstPause is the first pause between attempts that follow each other; each further one is twice as long.
	FirstPause = 50 * time.Millisecond
	// jitter is by how much of itself each pause is shortened at most, so that clients that started together
	// do not renew together.
	jitter = 0.2
)

// Jittered returns a pause that is shortened at random.
func Jittered(pause time.Duration) time.Duration {
	return pause - time.Duration(rand.Float64()*jitter*float64(pause))
}

// WithRequestID gives a request an id, which is in the server's log.
func WithRequestID(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "uuid", ids.NewRequest())
}
