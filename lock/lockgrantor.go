package lock

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/models"
)

// LockClient is what the runners of locks and presences need of a client: a
// models.LocketClient, or a fake of these two methods. Answers without a token are those of a
// server that has none. The calls must return when their contexts are done. A client that has Watch too, as in
// models.LocketClient, lets the runner hear at once that somebody else has ended its grant.
type LockClient interface {
	// Lock takes the lock of a resource for its owner, or renews it. The errors are those of
	// models.LocketClient; ErrLockCollision and ErrResourceNotFound say that it is not held.
	Lock(ctx context.Context, in *models.LockRequest, opts ...grpc.CallOption) (*models.LockResponse, error)
	// Release ends the grant with the token, or without one whatever the owner holds.
	Release(ctx context.Context, in *models.ReleaseRequest, opts ...grpc.CallOption) (*models.ReleaseResponse, error)
}

// lockGrantor holds a lock by Lock and Release.
type lockGrantor struct {
	client   LockClient
	resource *models.Resource
	ttl      time.Duration
}

func (g *lockGrantor) take(ctx, _ context.Context, token uint64) (uint64, time.Duration, error) {
	request := &models.LockRequest{Resource: g.resource, TtlInSeconds: int64(math.Ceil(g.ttl.Seconds()))}
	if token != 0 {
		request.Token = &token
	}
	resp, err := g.client.Lock(ctx, request, grpc.WaitForReady(true))
	return resp.GetToken(), g.ttl, err
}

func (g *lockGrantor) release(ctx context.Context, token uint64) error {
	request := &models.ReleaseRequest{Resource: g.resource}
	if token != 0 {
		request.Token = &token
	}
	_, err := g.client.Release(ctx, request, grpc.WaitForReady(true))
	return err
}

func (g *lockGrantor) watch(ctx context.Context, token uint64, look func()) error {
	if token == 0 { // of a server that gives none
		return nil
	}
	return watchGrant(ctx, g.client, g.resource.GetKey(), g.resource.GetOwner(), g.ttl, func(c *models.Claim) bool { return c.GetToken() == token }, look)
}

func (g *lockGrantor) exact(token uint64) bool { return token != 0 }

func (g *lockGrantor) timeout(uint64) time.Duration { return attemptTimeout(g.ttl) }

func (g *lockGrantor) classify(err error) verdict {
	switch err := models.FromWire(err); {
	case errors.Is(err, models.ErrLockCollision), errors.Is(err, models.ErrResourceNotFound):
		return ended
	case errors.Is(err, models.ErrInvalidType): // the others are InvalidArgument
		return permanent
	default:
		return classify(err)
	}
}

func (g *lockGrantor) next() grantor { return g }

func (g *lockGrantor) id() string { return "" }
