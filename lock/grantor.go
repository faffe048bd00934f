package lock

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// grantor asks the server for what a keeper keeps.
type grantor interface {
	// take gains the grant, or, with its token, renews it. It returns the token, and the time
	// for which the grant lasted when the server answered. When leave is done, it waits for
	// no turn any longer.
	take(ctx, leave context.Context, token uint64) (uint64, time.Duration, error)
	// release ends the grant with a token; with 0 whatever take may have left.
	release(ctx context.Context, token uint64) error
	// timeout is how long one call of take may last.
	timeout(token uint64) time.Duration
	// classify returns what an error of take or release means.
	classify(err error) verdict
}

// verdict is what an answer of the server means.
type verdict int

const (
	// unclear: the request may have been carried out, or not.
	unclear verdict = iota
	// ended: another owner holds it, or what was to be renewed or released has ended.
	ended
	// waiting: the claim waits for its turn.
	waiting
	// permanent: the request is wrong, and will fail again.
	permanent
)

// lockGrantor holds a lock by Lock and Release.
type lockGrantor struct {
	client   models.LocketClient
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

func (g *lockGrantor) timeout(uint64) time.Duration { return g.ttl / 3 }

func (g *lockGrantor) classify(err error) verdict {
	switch wire := known(err); {
	case errors.Is(wire, models.ErrLockCollision), errors.Is(wire, models.ErrResourceNotFound):
		return ended
	case wire != nil:
		return permanent
	default:
		return classify(err)
	}
}

// classify returns what an error of any request means.
func classify(err error) verdict {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented:
		return permanent
	default:
		return unclear
	}
}
