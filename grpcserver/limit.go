package grpcserver

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// DefaultMaxRequests is how many requests a server runs concurrently, over all connections. So many requests take some
// seconds, and each needs about 10 KiB.
const DefaultMaxRequests = 16_384

// maxOtherStreams is how many streams of other services a server runs concurrently: reflection streams last as long as their callers like.
const maxOtherStreams = 1_000

// Limit returns a guard that limits the concurrent calls of a server, over gRPC and REST together. More calls get
// ResourceExhausted, reason OVERLOADED. When half of the limit is in use it refuses reads and new claims, so that
// renewals and releases still find room. Of these, up to three quarters of the limit, it accepts calls of an identity
// that uses less than its share of the half, which is the same for all identities with running calls. Calls that last
// do not count; streams of reflection have a bound of their own. The guard must come after authentication: calls that are refused there do not count.
// count returns how many calls it counts now.
func Limit(limit int, registerer prometheus.Registerer) (guard Guard, count func() int) {
	u := &underWay{limit: limit, of: make(map[string]int)}
	registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "locket_requests_under_way",
		Help: "Requests that are being carried out, without waits, sessions and watches.",
	}, func() float64 { return float64(u.count()) }))
	guard = func(ctx context.Context, call *Call, next func(context.Context) error) error {
		method, _ := methods.Of(call.FullMethod)
		if method.Lasts != methods.Short {
			return next(ctx)
		}
		if call.Stream {
			defer u.others.Add(-1)
			if u.others.Add(1) > maxOtherStreams {
				return overloaded
			}
			return next(ctx)
		}
		if !u.begin(call.Identity(), method.Keeps) {
			return overloaded
		}
		defer u.end(call.Identity())
		return next(ctx)
	}
	return guard, u.count
}

// underWay counts the running calls.
type underWay struct {
	limit  int
	others atomic.Int64 // streams of other services

	mu  sync.Mutex
	all int
	of  map[string]int // by identity
}

func (u *underWay) begin(identity string, keeps bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	all, own, half := u.all+1, u.of[identity]+1, (u.limit+1)/2
	if all > u.limit || !keeps && all > half && !u.hasShare(all, own, half) {
		return false
	}
	u.all, u.of[identity] = all, own
	return true
}

// hasShare reports whether an identity may begin a call although half of the limit is in use. own is the number of its
// calls including this one, and all the number of everybody's calls.
func (u *underWay) hasShare(all, own, half int) bool {
	identities := len(u.of)
	if own == 1 {
		identities++ // it has no running call yet
	}
	return identities > 1 && all <= u.limit*3/4 && own*identities <= half
}

func (u *underWay) end(identity string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all--
	if u.of[identity]--; u.of[identity] == 0 {
		delete(u.of, identity)
	}
}

func (u *underWay) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all
}

var overloaded = func() error {
	s, err := status.New(codes.ResourceExhausted, "too many requests are under way; nothing was changed; ask again in a second").
		WithDetails(&errdetails.ErrorInfo{Reason: models.ReasonOverloaded, Domain: models.ErrorDomain})
	if err != nil {
		panic(err) // never with messages of this type
	}
	return s.Err()
}()
