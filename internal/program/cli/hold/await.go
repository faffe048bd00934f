package hold

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/models"
)

// maxAwait is the longest wait of one request, because servers may be replaced.
const maxAwait = time.Minute

// Await returns the claim when it no longer waits, or when the time is up. A server that
// does not refuse, but cannot be reached, fails, or has too much to do, is asked again until then, the last time just then, and so is one that has seen the credentials
// end: others may be there.
func Await(ctx context.Context, c *connect.Connection, claim *models.Claim, wait time.Duration) (*models.Claim, error) {
	end, rest := time.Now().Add(wait), retryPause
	for claim.GetStatus() == models.Status_STATUS_WAITING {
		left := time.Until(end)
		timeout := min(max(left, time.Millisecond), maxAwait)
		attempt, cancel := context.WithTimeout(ctx, timeout+c.Timeout)
		next, err := c.AwaitClaim(attempt, &models.AwaitClaimRequest{Id: claim.GetId(), Timeout: durationpb.New(timeout)})
		cancel()
		switch {
		case err == nil && time.Until(end) <= 0:
			return next, nil
		case err == nil:
			claim, rest = next, retryPause
		case !unclear(err), left <= 0, status.Code(err) == codes.DeadlineExceeded && time.Until(end) <= 0, periodic.Pause(ctx, min(rest, time.Until(end))) != nil:
			return claim, err
		default:
			rest = min(2*rest, time.Second)
		}
	}
	return claim, nil
}

// Watch is Await that describes the wait on a terminal meanwhile.
func Watch(ctx context.Context, c *connect.Connection, stderr io.Writer, claim *models.Claim, wait time.Duration) (*models.Claim, error) {
	if claim.GetStatus() != models.Status_STATUS_WAITING {
		return claim, deadlockOf(ctx, c, claim)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queued, over := make(chan struct{}), make(chan struct{})
	close(queued)
	t := &turn{Connection: c, Messages: NewMessages(stderr), resource: claim.GetResource(), id: claim.GetId, queued: queued, active: over}
	var last *models.Claim
	var err error
	go func() {
		defer close(over)
		last, err = Await(ctx, c, claim, wait)
	}()
	failed := t.await(ctx)
	cancel()
	<-over
	if ended := endedWhile(err, claim.GetResource()); ended != nil {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
		defer cancel()
		if now, failed := c.GetClaim(after, &models.GetClaimRequest{Id: claim.GetId()}); failed == nil {
			last = now
		}
		return last, ended
	}
	return last, cmp.Or(failed, err)
}

// deadlockOf returns the error of a claim that has been aborted to end a deadlock, nil for any other claim. The server describes
// the deadlock to a caller that waits.
func deadlockOf(ctx context.Context, c *connect.Connection, claim *models.Claim) error {
	if claim.GetStatus() != models.Status_STATUS_ABORTED {
		return nil
	}
	ctx, cancel := c.Request(ctx)
	defer cancel()
	_, err := c.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: claim.GetId(), Timeout: durationpb.New(c.Timeout)})
	return endedWhile(err, claim.GetResource())
}

// AwaitTurn waits for a time until a claim is active. If it is not by then, or ctx is canceled, the claim leaves the queue unless keep is
// set. It returns the claim as of then, and an error with an exit status.
func AwaitTurn(ctx context.Context, c *connect.Connection, stderr io.Writer, claim *models.Claim, wait time.Duration, keep bool) (*models.Claim, error) {
	claim, err := Watch(ctx, c, stderr, claim, wait)
	switch waits := claim.GetStatus() == models.Status_STATUS_WAITING; {
	case err == nil && (keep || !waits):
		return claim, Inactive(claim)
	case !waits:
		return claim, err
	case keep:
		return claim, exit.With(stoppedStatus(ctx), fmt.Errorf("the claim %s stays in the queue; to withdraw it: locket release --id %[1]s (%w)",
			claim.GetId(), c.Explain(err)))
	}
	return leaveLine(ctx, c, claim, wait, err)
}

// RenewGranted returns a claim with its whole TTL if its turn has come: one with a wait TTL falls due within that, until it is renewed. If
// the renewal fails, it returns the claim unchanged.
func RenewGranted(ctx context.Context, c *connect.Connection, claim *models.Claim, ttl time.Duration) *models.Claim {
	if claim.GetStatus() != models.Status_STATUS_ACTIVE || claim.WaitTtl == nil {
		return claim
	}
	ctx, cancel := c.Request(ctx)
	defer cancel()
	renewed, err := c.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: claim.GetId(), Ttl: proto.Float64(ttl.Seconds())})
	if err != nil {
		return claim
	}
	return renewed
}

// leaveLine withdraws a claim whose turn did not come, or whose wait ended in an error.
func leaveLine(ctx context.Context, c *connect.Connection, claim *models.Claim, wait time.Duration, err error) (*models.Claim, error) {
	after, cancel := c.Request(context.WithoutCancel(ctx))
	defer cancel()
	ended, failed := c.EndClaim(after, &models.EndClaimRequest{Id: claim.GetId(), Reason: "its client stopped waiting"})
	switch {
	case failed != nil:
		return claim, exit.With(stoppedStatus(ctx), fmt.Errorf("the claim %s may still be in the queue; to withdraw it: locket release --id %[1]s (%w)",
			claim.GetId(), c.Explain(failed)))
	case ctx.Err() != nil:
		return ended, interrupted(claim.GetResource())
	case err != nil:
		return ended, c.Explain(err)
	default:
		return ended, tooLate(ctx, c, claim.GetResource(), wait)
	}
}

// stoppedStatus is the exit status after a wait that failed or was interrupted.
func stoppedStatus(ctx context.Context) int {
	if ctx.Err() != nil {
		return exit.Interrupted
	}
	return exit.Failure
}

// Inactive returns nil for an active claim, and otherwise the error that the command ends with.
func Inactive(claim *models.Claim) error {
	switch claim.GetStatus() {
	case models.Status_STATUS_ACTIVE:
		return nil
	case models.Status_STATUS_WAITING:
		return exit.With(exit.Held, fmt.Errorf("the claim waits at %s, and stays in the queue; to wait for it: locket get %s --wait 1m; to withdraw it: locket release --id %[2]s",
			placeOf(claim), claim.GetId()))
	default:
		return models.ClaimEnded(claim)
	}
}
