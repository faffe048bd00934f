package grpcserver

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// DefaultMaxRequests is how many requests a server has under way at most, however many
// connections there are. It takes some seconds to carry out as many; each costs some 10 KiB.
const DefaultMaxRequests = 16_384

// Limit returns a guard that bounds how many calls are under way at once, through all doors: more
// get ResourceExhausted, reason OVERLOADED. From half of the limit on it refuses reads and new
// claims, so that renewals and releases still find room; of these, an identity with less than its
// share of the half, which those with calls under way have in equal parts, finds room up to three
// quarters. Calls that last do not count. It comes after the guard that knows who calls: what is
// refused there has no part of the limit.
func Limit(limit int, registerer prometheus.Registerer) Guard {
	u := &underWay{limit: limit, of: make(map[string]int)}
	registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "locket_requests_under_way",
		Help: "Requests that are being carried out, without waits, sessions and watches.",
	}, func() float64 { return float64(u.count()) }))
	return func(ctx context.Context, call *Call, next func(context.Context) error) error {
		method, _ := methods.Of(call.FullMethod)
		if method.Lasts != methods.Short {
			return next(ctx)
		}
		if !u.begin(call.Identity, method.Keeps) {
			return overloaded
		}
		defer u.end(call.Identity)
		return next(ctx)
	}
}

// underWay counts the calls that are under way.
type underWay struct {
	limit int

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

// hasShare reports whether an identity finds room although half of it is in use, when own is the number
// of its calls with the one that begins, and all that of all.
func (u *underWay) hasShare(all, own, half int) bool {
	identities := len(u.of)
	if own == 1 {
		identities++ // it has nothing under way yet
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
		panic(err) // never, with messages of this kind
	}
	return s.Err()
}()
