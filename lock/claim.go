package lock

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/ids"
	"github.com/locket-service/locket/models"
)

// NewClaimRunner returns a runner like that of NewLockRunner which waits for its turn in the
// queue of the resource, and may share it: it is ready once its claim is active, renews it,
// and ends with an error that wraps ErrLost as soon as it has lost it. The TTL is that of the
// claim, DefaultTTL if it has none. A claim without an id gets one.
func NewClaimRunner(client models.LocketClient, claim *models.CreateClaimRequest, options ...Option) *Runner {
	claim, _ = proto.Clone(claim).(*models.CreateClaimRequest)
	settings := newSettings(time.Duration(min(claim.GetTtl()*float64(time.Second), math.MaxInt64)), 0, options)
	if claim != nil {
		claim.Ttl = proto.Float64(settings.ttl.Seconds())
		claim.Id = cmp.Or(claim.GetId(), ids.NewClaim())
	}
	return &Runner{
		settings: settings, key: claim.GetResource(), owner: claim.GetOwner(), exitOnLoss: true,
		grantor: &claimGrantor{client, claim, settings.ttl}, usable: client != nil && claim != nil,
	}
}

// claimGrantor holds a claim by its id.
type claimGrantor struct {
	client models.LocketClient
	claim  *models.CreateClaimRequest
	ttl    time.Duration
}

// turn is how long one call may wait for the claim's turn.
const turn = 30 * time.Second

func (g *claimGrantor) take(ctx, leave context.Context, token uint64) (uint64, time.Duration, error) {
	claim, err := g.ask(ctx, leave, token)
	switch {
	case err != nil:
		return 0, 0, err
	case claim.GetStatus() == models.Status_STATUS_WAITING:
		return 0, 0, errWaiting
	case claim.GetStatus() != models.Status_STATUS_ACTIVE:
		return 0, 0, endedError(claim.GetStatus())
	}
	// A claim that is found may have been active for a while.
	return claim.GetToken(), min(g.ttl, time.Duration(claim.GetTtl()*float64(time.Second))), nil
}

// ask renews the claim, or makes it, finds it again, and waits for its turn.
func (g *claimGrantor) ask(ctx, leave context.Context, token uint64) (*models.Claim, error) {
	if token != 0 {
		return g.client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: g.claim.GetId(), Ttl: g.claim.Ttl}, grpc.WaitForReady(true))
	}
	claim, err := g.client.CreateClaim(ctx, g.claim, grpc.WaitForReady(true))
	if err == nil && claim.GetStatus() == models.Status_STATUS_WAITING {
		return g.await(ctx, leave)
	}
	return claim, err
}

func (g *claimGrantor) await(ctx, leave context.Context) (*models.Claim, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(leave, cancel)()
	return g.client.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: g.claim.GetId(), Timeout: durationpb.New(turn)})
}

func (g *claimGrantor) release(ctx context.Context, _ uint64) error {
	_, err := g.client.EndClaim(ctx, &models.EndClaimRequest{Id: g.claim.GetId()}, grpc.WaitForReady(true))
	return err
}

func (g *claimGrantor) timeout(token uint64) time.Duration {
	if token == 0 {
		return turn + g.ttl/3
	}
	return g.ttl / 3
}

func (g *claimGrantor) classify(err error) verdict {
	if err == errWaiting { //nolint:errorlint // take returns this very value
		return waiting
	}
	if _, final := err.(endedError); final { //nolint:errorlint // take returns this very type
		return permanent
	}
	switch status.Code(err) {
	case codes.NotFound, codes.FailedPrecondition:
		return ended
	case codes.AlreadyExists: // another's claim has the id
		return permanent
	default:
		return classify(err)
	}
}

var errWaiting = status.Error(codes.Aborted, "the claim waits for its turn")

// endedError is the status in which a claim has ended before it was active.
type endedError models.Status

func (e endedError) Error() string {
	return fmt.Sprintf("the claim ended while it waited: %s", models.Status(e))
}
