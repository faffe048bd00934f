package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/internal/cli/exit"
	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/models"
)

// maxAwait is the longest wait of one request, because servers may be replaced.
const maxAwait = time.Minute

// await returns the claim when it no longer waits, or when the time is up. A server that
// does not refuse, but cannot be reached, fails, or has too much to do, is asked again until then, the last time just then, and so is one that has seen the credentials
// end: others may be there.
func (c *connection) await(ctx context.Context, claim *models.Claim, wait time.Duration) (*models.Claim, error) {
	end, rest := time.Now().Add(wait), retryPause
	for claim.GetStatus() == models.Status_STATUS_WAITING {
		left := time.Until(end)
		next, err := c.awaitOnce(ctx, claim.GetId(), min(max(left, time.Millisecond), maxAwait))
		switch {
		case err == nil && time.Until(end) <= 0:
			return next, nil
		case err == nil:
			claim, rest = next, retryPause
		case !again(err), left <= 0, status.Code(err) == codes.DeadlineExceeded && time.Until(end) <= 0, pause(ctx, min(rest, time.Until(end))) != nil:
			return claim, err
		default:
			rest = min(2*rest, time.Second)
		}
	}
	return claim, nil
}

func (c *connection) awaitOnce(ctx context.Context, id string, timeout time.Duration) (*models.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+c.Timeout)
	defer cancel()
	return c.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: id, Timeout: durationpb.New(timeout)})
}

// awaitTurn waits for a time until a claim is active. If it is not by then, or ctx is
// canceled, the claim leaves the line unless it is to be kept. The error says what to end
// with; the claim is as it is then.
func (c *connection) awaitTurn(ctx context.Context, claim *models.Claim, wait time.Duration, keep bool) (*models.Claim, error) {
	claim, err := c.await(ctx, claim, wait)
	switch {
	case err == nil && (keep || claim.GetStatus() != models.Status_STATUS_WAITING):
		return claim, inactiveError(claim)
	case keep:
		return claim, exit.With(stoppedStatus(ctx), fmt.Errorf("the claim %s stays in the line; to withdraw it: locket release --id %[1]s (%w)",
			claim.GetId(), c.Explain(err)))
	}
	return c.leaveLine(ctx, claim, wait, err)
}

// renewGranted returns a claim with its whole TTL if its turn has come: one with a wait TTL falls
// due within that, until it is renewed. What cannot be renewed stays as it is.
func (c *connection) renewGranted(ctx context.Context, claim *models.Claim, ttl time.Duration) *models.Claim {
	if claim.GetStatus() != models.Status_STATUS_ACTIVE || claim.WaitTtl == nil {
		return claim
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	renewed, err := c.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: claim.GetId(), Ttl: proto.Float64(ttl.Seconds())})
	if err != nil {
		return claim
	}
	return renewed
}

// leaveLine withdraws a claim whose turn did not come, or whose wait ended in an error.
func (c *connection) leaveLine(ctx context.Context, claim *models.Claim, wait time.Duration, err error) (*models.Claim, error) {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Timeout)
	defer cancel()
	ended, failed := c.EndClaim(late, &models.EndClaimRequest{Id: claim.GetId(), Reason: "its client stopped waiting"})
	switch {
	case failed != nil:
		return claim, exit.With(stoppedStatus(ctx), fmt.Errorf("the claim %s may still be in the line; to withdraw it: locket release --id %[1]s (%w)",
			claim.GetId(), c.Explain(failed)))
	case ctx.Err() != nil:
		return ended, exit.With(exit.Interrupted, errors.New("interrupted; the claim has left the line"))
	case err != nil:
		return ended, c.Explain(err)
	default:
		return ended, exit.With(exit.Held, fmt.Errorf("its turn did not come within %s, and the claim has left the line; to see who holds it: locket resource %s",
			wait, printable.ShellQuoted(claim.GetResource())))
	}
}

// stoppedStatus is what to end with after a wait that did not come to its end.
func stoppedStatus(ctx context.Context) int {
	if ctx.Err() != nil {
		return exit.Interrupted
	}
	return exit.Failure
}

// inactiveError returns nil for an active claim, else the error that the command ends with.
func inactiveError(claim *models.Claim) error {
	switch claim.GetStatus() {
	case models.Status_STATUS_ACTIVE:
		return nil
	case models.Status_STATUS_WAITING:
		return exit.With(exit.Held, fmt.Errorf("the claim waits for its turn, and stays in the line; to wait for it: locket get %s --wait 1m; to withdraw it: locket release --id %[1]s",
			claim.GetId()))
	default:
		return models.ClaimEnded(claim)
	}
}

// showWithError shows a claim, also one that is not active, and returns err.
func showWithError(cmd *cobra.Command, v view, err error) error {
	if failed := printView(cmd, v); failed != nil {
		return failed
	}
	return err
}
