package grpcserver

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/base/share"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// DefaultMaxRequests is how many requests a server runs concurrently, over all connections. That many requests take
// some seconds, and each needs about 10 KiB.
const DefaultMaxRequests = 16_384

// maxOtherStreams is how many streams of reflection a server runs concurrently.
const maxOtherStreams = 1_000

// Limit returns a guard that limits the concurrent calls of a server, over gRPC and REST together. More calls get
// ResourceExhausted, reason OVERLOADED. Identities share the limit: see package share. Up to three quarters of it are
// for reads and new claims, the rest for renewals and releases. Waits, watches and sessions do not count; their handlers
// limit them. Streams of reflection have a limit of their own. The guard must come after authentication: calls that are
// refused there do not count.
func Limit(limit int, registerer prometheus.Registerer) Guard {
	calls, streams := share.NewShort(limit), share.NewLasting(maxOtherStreams)
	registerer.MustRegister(metric.GaugeFunc("locket_requests_under_way", "Requests that are being carried out, without waits, sessions and watches.", func() float64 { return float64(calls.Count()) }))
	return func(ctx context.Context, call *Call, next func(context.Context) error) error {
		method, _ := methods.Of(call.FullMethod)
		if method.Lasts != methods.Short {
			return next(ctx)
		}
		identity, limited := call.Identity(), calls
		if call.Stream {
			limited = streams
		}
		if !limited.Begin(identity, method.Keeps) {
			return overloaded
		}
		defer limited.End(identity)
		return next(ctx)
	}
}

var overloaded = models.WithInfo(status.New(codes.ResourceExhausted, "too many requests are under way; nothing was changed; ask again in a second"), models.ReasonOverloaded, nil)
