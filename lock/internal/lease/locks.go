package lease

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/feed"
	"github.com/locket-service/locket/models"
)

// Locker has the calls needed to hold a lock by Lock; lock.LockClient documents each of them.
type Locker interface {
	Lock(ctx context.Context, in *models.LockRequest, opts ...grpc.CallOption) (*models.LockResponse, error)
	Release(ctx context.Context, in *models.ReleaseRequest, opts ...grpc.CallOption) (*models.ReleaseResponse, error)
}

// NewLocks returns a Holder by calls of Lock.
func NewLocks(client Locker, resource *models.Resource, settings base.Settings) *Holder {
	return newHolder(settings, resource.GetKey(), resource.GetOwner(), &lockCalls{client: client, resource: resource, ttl: settings.TTL})
}

// lockCalls holds a lock by Lock and Release.
type lockCalls struct {
	client   Locker
	resource *models.Resource
	ttl      time.Duration
}

func (g *lockCalls) take(ctx, _ context.Context, token uint64, waiting func(holder string)) (uint64, time.Duration, error) {
	request := &models.LockRequest{Resource: g.resource, TtlInSeconds: int64(math.Ceil(g.ttl.Seconds()))}
	if token != 0 {
		request.Token = &token
	}
	resp, err := g.client.Lock(ctx, request, grpc.WaitForReady(true))
	if token == 0 && errors.Is(models.FromWire(err), models.ErrLockCollision) {
		waiting(models.ErrorInfoOf(err).GetMetadata()["holder"])
	}
	return resp.GetToken(), g.ttl, err
}

func (g *lockCalls) release(ctx context.Context, token uint64) error {
	request := &models.ReleaseRequest{Resource: g.resource}
	if token != 0 {
		request.Token = &token
	}
	_, err := g.client.Release(ctx, request, grpc.WaitForReady(true))
	return err
}

func (g *lockCalls) watch(ctx context.Context, token uint64, look func()) error {
	if token == 0 { // of a server that gives none
		return nil
	}
	return watchGrant(ctx, g.client, g.resource.GetKey(), g.resource.GetOwner(), g.ttl, func(c *models.Claim) bool { return c.GetToken() == token }, look)
}

func (g *lockCalls) why(ctx context.Context, token uint64) error {
	reader, ok := g.client.(interface {
		ListClaims(ctx context.Context, in *models.ListClaimsRequest, opts ...grpc.CallOption) (*models.ListClaimsResponse, error)
	})
	if !ok {
		return nil
	}
	latest, err := reader.ListClaims(ctx, &models.ListClaimsRequest{
		Resource: new(g.resource.GetKey()), Owner: new(g.resource.GetOwner()), Order: models.Order_ORDER_NEWEST,
	})
	if err != nil {
		return nil
	}
	for _, c := range latest.GetClaims() {
		if c.GetToken() == token && !feed.IsLive(c.GetStatus()) {
			return models.ClaimEnded(c)
		}
	}
	return nil
}

func (g *lockCalls) exact(token uint64) bool { return token != 0 }

func (g *lockCalls) timeout(uint64) time.Duration { return base.AttemptTimeout(g.ttl) }

func (g *lockCalls) classify(err error) base.Verdict {
	switch err := models.FromWire(err); {
	case errors.Is(err, models.ErrLockCollision), errors.Is(err, models.ErrResourceNotFound), errors.Is(err, models.ErrRolledBack):
		return base.Ended
	case errors.Is(err, models.ErrInvalidType): // the others are InvalidArgument
		return base.Permanent
	default:
		return base.Classify(err)
	}
}

func (g *lockCalls) next() calls { return g }

func (g *lockCalls) id() string { return "" }
