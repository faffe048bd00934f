// Package feed follows the claims of a Watch over any number of streams.
package feed

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// Client has the one method that a feed calls.
type Client interface {
	Watch(ctx context.Context, in *models.WatchRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[models.WatchResponse], error)
}

// Feed reads a Watch over any number of streams.
type Feed struct {
	// Client returns the client of the next stream. Run returns its error.
	Client  func() (Client, error)
	Request *models.WatchRequest
	// Started, if it is set, is called when a stream begins. The stream repeats the messages after the last cursor.
	Started func()
	// Take takes a message. If it returns an error the stream ends, and the next one repeats the message.
	Take func(context.Context, *models.WatchResponse) error
	// Broken, if it is set, is called when a stream has ended and another one will follow.
	Broken func(error)
	// Longest is the longest pause between two streams.
	Longest time.Duration
}

// MaxPause is the longest pause between two streams.
const MaxPause = time.Second

// Run follows until the context is done, or the servers refuse; its error is never nil.
func (f *Feed) Run(ctx context.Context) error {
	var failure error // of the last stream
	attempts := 0     // since one was healthy
	for {
		watcher, err := f.Client()
		if err != nil {
			return err
		}
		healthy, err := f.stream(ctx, watcher)
		switch {
		case ctx.Err() != nil && !healthy && failure != nil:
			return fmt.Errorf("%w: %w", context.Cause(ctx), failure)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case models.ReasonOf(err) == models.ReasonCursorTooOld:
			f.Request.Cursor = ""
		case base.Classify(err) == base.Permanent, base.Classify(err) == base.Denied:
			return err
		}
		if f.Broken != nil {
			f.Broken(err)
		}
		if status.Code(err) != codes.DeadlineExceeded { // this is the context's own deadline, as the server sees it
			failure = err
		}
		if healthy {
			attempts = 0
		}
		attempts++
		_ = periodic.Pause(ctx, base.Backoff.Pause(attempts, f.Longest))
	}
}

// stream follows over one stream, and reports whether a message was taken.
func (f *Feed) stream(ctx context.Context, watcher Client) (healthy bool, err error) {
	ctx, cancel := context.WithCancel(base.WithRequestID(ctx))
	defer cancel()
	stream, err := watcher.Watch(ctx, f.Request)
	if err != nil {
		return false, err
	}
	if f.Started != nil {
		f.Started()
	}
	for {
		m, err := stream.Recv()
		if err == nil {
			err = f.Take(ctx, m)
		}
		if err != nil {
			return healthy, err
		}
		if m.GetCursor() != "" {
			f.Request.Cursor, healthy = m.GetCursor(), true
		}
	}
}

// ClaimsOf returns the claims of a message, as they are after their changes.
func ClaimsOf(m *models.WatchResponse) []*models.Claim {
	claims := m.GetSnapshot()
	for _, t := range m.GetTransitions() {
		claims = append(claims, t.GetClaim())
	}
	return claims
}
