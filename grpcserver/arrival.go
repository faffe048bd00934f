package grpcserver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/locket-service/locket/models"
)

type arrivalKey struct{}

// arriving returns the handler that gRPC calls with the header of each call. It has the stream's context.
func arriving(arrive func(ctx context.Context, cut func()) func()) tap.ServerInHandle {
	return func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		cuttable, cut := context.WithCancel(ctx)
		arrived := arrive(ctx, cut)
		if arrived == nil {
			cut()
			return ctx, nil
		}
		context.AfterFunc(ctx, arrived)
		return context.WithValue(cuttable, arrivalKey{}, arrived), nil
	}
}

// arrived notes that the message of a call has arrived, or that its caller was authenticated.
func arrived(ctx context.Context) {
	if done, ok := ctx.Value(arrivalKey{}).(func()); ok {
		done()
	}
}

const (
	// maxHealthStreams limits the watches of the health service. Callers without valid credentials may only begin one
	// while there are fewer than maxUnknownHealthStreams.
	maxHealthStreams        = 10_000
	maxUnknownHealthStreams = 1_000
)

var errHealthStreams = models.WithInfo(status.New(codes.ResourceExhausted, "too many watches of the health service; ask with Check"), models.ReasonOverloaded, nil)

// watchHealth runs a stream of the health service, which needs no credentials.
func (c *Chain) watchHealth(ctx context.Context, handler func(context.Context) error) error {
	room := int64(maxHealthStreams)
	if ctx.Value(arrivalKey{}) != nil {
		room = maxUnknownHealthStreams
	}
	defer c.healthStreams.Add(-1)
	if c.healthStreams.Add(1) > room {
		return errHealthStreams
	}
	return handler(ctx)
}
