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
	// giveBack ends the grant with a token; with 0 whatever take may have left.
	giveBack(ctx context.Context, token uint64) error
	// patience is how long one call of take may last.
	patience(token uint64) time.Duration
	// judge says what an error of take or giveBack means.
	judge(err error) verdict
}

// verdict is what an answer of the server means.
type verdict int

const (
	// unclear: nobody knows whether the request was carried out.
	unclear verdict = iota
	// gone: somebody else has it, or what was to be renewed or given back is no more.
	gone
	// queued: the claim waits for its turn.
	queued
	// hopeless: the request is wrong, asking again is of no use.
	hopeless
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

func (g *lockGrantor) giveBack(ctx context.Context, token uint64) error {
	request := &models.ReleaseRequest{Resource: g.resource}
	if token != 0 {
		request.Token = &token
	}
	_, err := g.client.Release(ctx, request, grpc.WaitForReady(true))
	return err
}

func (g *lockGrantor) patience(uint64) time.Duration { return g.ttl / 3 }

func (g *lockGrantor) judge(err error) verdict {
	switch wire := known(err); {
	case errors.Is(wire, models.ErrLockCollision), errors.Is(wire, models.ErrResourceNotFound):
		return gone
	case wire != nil:
		return hopeless
	default:
		return judge(err)
	}
}

// judge says what an error means of any request.
func judge(err error) verdict {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented:
		return hopeless
	default:
		return unclear
	}
}
