package guard

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// Limit returns a guard that holds each identity to its quota, as far as this server sees its calls. Package quota holds
// it to its quotas of claims.
func Limit() grpcserver.Guard {
	l := newLimiter()
	return func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		caller := access.CallerOf(ctx)
		quota := caller.Quota
		if quota == nil {
			return next(ctx)
		}
		u := l.begin(caller.Name)
		defer u.end()
		if delay := u.take(quota); delay > 0 {
			return models.QuotaExceeded(caller.Name, "requests_per_second", strconv.FormatFloat(quota.Requests, 'g', -1, 64), delay)
		}
		if name, most := atOnce(call.FullMethod, quota); most > 0 {
			if !u.enter(name, most) {
				return models.QuotaExceeded(caller.Name, name, strconv.Itoa(most), 0)
			}
			defer u.leave(name)
		}
		call.Check(func(message any) error { return fits(caller.Name, quota, message) })
		switch method, _ := methodOf(call.FullMethod); {
		case quota.Requests == 0:
		case method.Lasts == methods.Session:
			ctx = access.WithPace(ctx, func(ctx context.Context) error { return u.wait(ctx, quota) })
		case method.Lasts == methods.Short && call.Stream: // reflection: each message is a request
			call.Check(func(any) error { return u.wait(ctx, quota) })
		}
		return next(ctx)
	}
}

// atOnce returns which quota limits the concurrent calls of a method, and to how many, 0 for no limit.
func atOnce(method string, q *access.Quota) (name string, most int) {
	m, _ := methodOf(method)
	switch m.Lasts {
	case methods.Wait:
		return "waiting_calls", q.Waiting
	case methods.Watch:
		return "watches", q.Watches
	case methods.Session:
		return "sessions", q.Sessions
	default:
		return "", 0
	}
}

// fits checks a message against the quota.
func fits(who string, q *access.Quota, message any) error {
	var ttl float64
	var data int
	switch m := message.(type) {
	case *models.LockRequest:
		ttl, data = float64(m.GetTtlInSeconds()), len(m.GetResource().GetValue())
	case *models.CreateClaimRequest:
		ttl, data = m.GetTtl(), max(len(m.GetUserData()), len(m.GetValue()))
	case *models.UpdateClaimRequest:
		ttl = m.GetTtl()
	case *models.SessionRequest:
		ttl, data = m.GetOpen().GetTtl(), max(len(m.GetLock().GetUserData()), len(m.GetLock().GetValue()))
	}
	longest := time.Duration(q.LongestTTL)
	switch {
	case longest > 0 && ttl > longest.Seconds():
		return models.QuotaExceeded(who, "longest_ttl", longest.String(), 0)
	case q.UserData > 0 && data > q.UserData:
		return models.QuotaExceeded(who, "user_data_bytes", strconv.Itoa(q.UserData), 0)
	}
	return nil
}

// retryIn is the detail of an error that says when the call may be repeated.
func retryIn(d time.Duration) protoadapt.MessageV1 {
	return protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
}

// limiter has the usage of each identity.
type limiter struct {
	mu     sync.Mutex
	usages map[string]*usage
	// room is how many identities are kept before idle ones are dropped.
	room int
}

// minUsages is the least room.
const minUsages = 10_000

func newLimiter() *limiter { return &limiter{usages: make(map[string]*usage), room: minUsages} }

type usage struct {
	mu sync.Mutex
	// bucket is nil before the first request that a quota counts.
	bucket *rate.Limiter
	// calls counts running calls; limited counts the ones that a quota limits, by the quota's name.
	calls   int
	limited map[string]int
}

// begin returns the usage of an identity, which begins a call; end ends it.
func (l *limiter) begin(name string) *usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.usages[name]
	if u == nil {
		if len(l.usages) >= l.room {
			maps.DeleteFunc(l.usages, func(_ string, known *usage) bool { return known.idle() })
			l.room = max(minUsages, 2*len(l.usages)) // so that idle usages are rarely searched
		}
		u = &usage{limited: make(map[string]int)}
		l.usages[name] = u
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls++
	return u
}

func (u *usage) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls--
}

// idle reports whether a new usage would be the same: no call is under way, and the bucket is full.
func (u *usage) idle() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls == 0 && (u.bucket == nil || u.bucket.Tokens() >= float64(u.bucket.Burst()))
}

// follow sets the bucket to the quota, which may have changed. The bucket keeps its content: a stream keeps the quota
// that it began with, so after a change calls with the old and the new quota alternate.
func (u *usage) follow(q *access.Quota) {
	limit, burst := rate.Limit(q.Requests), max(q.Burst, int(q.Requests), 1)
	switch {
	case u.bucket == nil:
		u.bucket = rate.NewLimiter(limit, burst)
	case u.bucket.Limit() != limit || u.bucket.Burst() != burst:
		u.bucket.SetLimit(limit)
		u.bucket.SetBurst(burst)
	}
}

// take takes one request out of the bucket, and returns how long to wait if there is none.
func (u *usage) take(q *access.Quota) time.Duration {
	if q.Requests == 0 {
		return 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.follow(q)
	reservation := u.bucket.Reserve()
	delay := reservation.Delay()
	if delay > 0 {
		reservation.Cancel()
	}
	return delay
}

// wait is take for a command of a session: it waits until there is a request in the bucket.
func (u *usage) wait(ctx context.Context, q *access.Quota) error {
	for {
		delay := u.take(q)
		if delay <= 0 {
			return nil
		}
		if err := periodic.Pause(ctx, delay); err != nil {
			return status.FromContextError(err).Err()
		}
	}
}

// enter begins a call if fewer than most run, and reports whether it did; leave ends it.
func (u *usage) enter(name string, most int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.limited[name] >= most {
		return false
	}
	u.limited[name]++
	return true
}

func (u *usage) leave(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limited[name]--
}
