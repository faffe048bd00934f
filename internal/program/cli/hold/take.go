// Package hold takes a lock or a claim, waits for its turn, keeps it until the command is interrupted, and releases it; it says who
// holds a resource, and why one is lost.
package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/models"
)

// retryPause is between two requests that found no server.
const retryPause = 300 * time.Millisecond

// Claim makes a claim. Its request has an id, so it is sent again if the answer is lost.
func Claim(ctx context.Context, client models.LocketClient, req *models.CreateClaimRequest) (*models.Claim, error) {
	for tries := 1; ; tries++ {
		attempt, cancel := answered(ctx)
		claim, err := client.CreateClaim(attempt, req)
		cancel()
		if status.Code(err) != codes.Unavailable || tries == 3 {
			return claim, err
		}
		if periodic.Pause(ctx, retryPause) != nil {
			return nil, err
		}
	}
}

// answerTime limits how long an interrupted command waits for the answer to a request under way. The answer names the
// claim that the command must release.
const answerTime = time.Second

// answered returns the context of a request. It ends answerTime after its command is interrupted.
func answered(ctx context.Context) (context.Context, context.CancelFunc) {
	request, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if deadline, ok := ctx.Deadline(); ok {
		request, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(answerTime, cancel) })
	return request, func() { stop(); cancel() }
}

// Lock takes a lock to keep it. An interrupted command waits for the answer, because releasing the lock needs its token. Without an
// answer, Lock releases the owner's lock on the resource, whatever its token.
func Lock(ctx context.Context, client models.LocketClient, req *models.LockRequest) (*models.LockResponse, error) {
	attempt, cancel := answered(ctx)
	defer cancel()
	resp, err := client.Lock(attempt, req)
	if !unclear(err) || !errors.Is(ctx.Err(), context.Canceled) {
		return resp, err
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	if _, failed := client.Release(late, &models.ReleaseRequest{Resource: req.GetResource()}); unclear(failed) {
		return nil, exit.With(exit.Interrupted, fmt.Errorf("interrupted; no server has released %q; it ends by itself within %s", req.GetResource().GetKey(), printable.Duration(time.Duration(req.GetTtlInSeconds())*time.Second, 2)))
	}
	return nil, err
}

// unclear reports whether a request that has ended so was not refused: it may have been carried out, or may yet be, and may be sent again,
// to this server or to another one.
func unclear(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown:
		return err != nil
	default:
		return models.ReasonOf(err) == models.ReasonCredentialsEnded
	}
}
