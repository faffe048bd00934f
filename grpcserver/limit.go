package grpcserver

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// DefaultMaxRequests is how many requests a server has under way at most, however many
// connections there are. It takes some seconds to carry out as many; each costs some 10 KiB.
const DefaultMaxRequests = 16_384

// keeping are the methods by which callers keep what they hold, and give it up.
var keeping = map[string]bool{
	models.Locket_Lock_FullMethodName:        true, // the committer can tell a renewal from a new lock
	models.Locket_Release_FullMethodName:     true,
	models.Locket_UpdateClaim_FullMethodName: true,
	models.Locket_EndClaim_FullMethodName:    true,
}

// lasting are the methods whose calls last as long as their callers like. They do not count: what
// implements them has limits of their own.
var lasting = map[string]bool{
	models.Locket_AwaitClaim_FullMethodName: true,
	models.Locket_Session_FullMethodName:    true,
	models.Locket_Watch_FullMethodName:      true,
}

// Limit returns a guard that bounds how many calls are under way at once, through all doors: more
// get ResourceExhausted, reason OVERLOADED. From half of the limit on it refuses reads and new
// claims, so that renewals and releases still find room. Calls that last do not count.
func Limit(limit int, registerer prometheus.Registerer) Guard {
	var underWay atomic.Int64
	registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "locket_requests_under_way",
		Help: "Requests that are being carried out, without waits, sessions and watches.",
	}, func() float64 { return float64(underWay.Load()) }))
	return func(ctx context.Context, call *Call, next func(context.Context) error) error {
		if lasting[call.FullMethod] {
			return next(ctx)
		}
		room := int64(limit)
		if !keeping[call.FullMethod] {
			room = (room + 1) / 2
		}
		defer underWay.Add(-1)
		if underWay.Add(1) > room {
			return overloaded
		}
		return next(ctx)
	}
}

var overloaded = func() error {
	s, err := status.New(codes.ResourceExhausted, "too many requests are under way; nothing was changed; ask again in a second").
		WithDetails(&errdetails.ErrorInfo{Reason: models.ReasonOverloaded, Domain: models.ErrorDomain})
	if err != nil {
		panic(err) // never, with messages of this kind
	}
	return s.Err()
}()
