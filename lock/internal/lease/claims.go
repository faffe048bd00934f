package lease

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/feed"
	"github.com/locket-service/locket/models"
)

// Claimer has the calls needed to hold a claim; lock.ClaimClient documents each of them.
type Claimer interface {
	CreateClaim(ctx context.Context, in *models.CreateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
	AwaitClaim(ctx context.Context, in *models.AwaitClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
	UpdateClaim(ctx context.Context, in *models.UpdateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
	EndClaim(ctx context.Context, in *models.EndClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
}

// NewClaims returns a Holder by calls of claims: the first time by this claim, which has an id and a TTL, and is never changed.
func NewClaims(client Claimer, claim *models.CreateClaimRequest, settings base.Settings) *Holder {
	return newHolder(settings, claim.GetResource(), claim.GetOwner(), &claimCalls{client, claim, settings.TTL})
}

// claimCalls holds a claim by its id.
type claimCalls struct {
	client Claimer
	claim  *models.CreateClaimRequest // never changed: late attempts use it
	ttl    time.Duration
}

func (g *claimCalls) take(ctx, leave context.Context, token uint64, waiting func(holder string)) (uint64, time.Duration, error) {
	claim, err := g.ask(ctx, leave, token, waiting)
	switch {
	case err != nil:
		return 0, 0, err
	case claim.GetStatus() == models.Status_STATUS_WAITING:
		return 0, 0, errWaiting
	case claim.GetStatus() != models.Status_STATUS_ACTIVE:
		return 0, 0, models.ClaimEnded(claim)
	}
	// A claim that is found may have been active for a while.
	return claim.GetToken(), min(g.ttl, time.Duration(claim.GetTtl()*float64(time.Second))), nil
}

// ask renews the claim, or makes it, finds it again, and waits in the queue.
func (g *claimCalls) ask(ctx, leave context.Context, token uint64, waiting func(holder string)) (*models.Claim, error) {
	if token != 0 {
		return g.client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: g.id(), Ttl: g.claim.Ttl}, grpc.WaitForReady(true))
	}
	claim, err := g.create(ctx)
	if err == nil && claim.GetStatus() == models.Status_STATUS_WAITING {
		waiting("")
		return g.await(ctx, leave)
	}
	return claim, err
}

func (g *claimCalls) create(ctx context.Context) (*models.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, g.createTimeout())
	defer cancel()
	return g.client.CreateClaim(ctx, g.claim, grpc.WaitForReady(true))
}

// await waits in the queue. The server answers in time for the answer to arrive before the
// deadline, which only passes when the connection or the server is stuck.
func (g *claimCalls) await(ctx, leave context.Context) (*models.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, g.awaitTimeout())
	defer cancel()
	defer context.AfterFunc(leave, cancel)()
	return g.client.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: g.id(), Timeout: durationpb.New(g.awaitTimeout() * 4 / 5)})
}

// A grant may be made right after AwaitClaim was sent, and its answer lost. These two bounds leave a quarter of its
// lease to find and renew it.
func (g *claimCalls) createTimeout() time.Duration { return min(g.lasts()/4, base.MaxAttempt) }
func (g *claimCalls) awaitTimeout() time.Duration  { return min(g.lasts()/2, base.MaxAttempt) }

// lasts returns how long a grant lasts at least if it is not renewed. While a call waits, half of the wait TTL is
// left.
func (g *claimCalls) lasts() time.Duration {
	if g.claim.WaitTtl == nil {
		return g.ttl
	}
	return min(g.ttl, time.Duration(g.claim.GetWaitTtl()/2*float64(time.Second)))
}

func (g *claimCalls) release(ctx context.Context, _ uint64) error {
	_, err := g.client.EndClaim(ctx, &models.EndClaimRequest{Id: g.id()}, grpc.WaitForReady(true))
	return err
}

func (g *claimCalls) watch(ctx context.Context, _ uint64, look func()) error {
	return watchGrant(ctx, g.client, g.claim.GetResource(), g.claim.GetOwner(), g.ttl, func(c *models.Claim) bool { return c.GetId() == g.id() }, look)
}

func (g *claimCalls) why(ctx context.Context, _ uint64) error {
	reader, ok := g.client.(interface {
		GetClaim(ctx context.Context, in *models.GetClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
	})
	if !ok {
		return nil
	}
	c, err := reader.GetClaim(ctx, &models.GetClaimRequest{Id: g.id()})
	if err != nil || feed.IsLive(c.GetStatus()) {
		return nil
	}
	return models.ClaimEnded(c)
}

func (g *claimCalls) exact(uint64) bool { return true }

func (g *claimCalls) timeout(token uint64) time.Duration {
	if token == 0 {
		return g.createTimeout() + g.awaitTimeout()
	}
	return base.AttemptTimeout(g.ttl)
}

func (g *claimCalls) classify(err error) base.Verdict {
	if err == errWaiting { //nolint:errorlint // take returns this very value
		return base.Waiting
	}
	if ended, is := err.(models.ClaimEndedError); is { //nolint:errorlint // take returns this very type
		if missed(ended) {
			return base.Missed
		}
		return base.Permanent
	}
	switch status.Code(err) {
	case codes.NotFound, codes.FailedPrecondition:
		return base.Ended
	case codes.AlreadyExists: // somebody else's claim has the id
		return base.Permanent
	default:
		return base.Classify(err)
	}
}

func (g *claimCalls) next() calls {
	claim, _ := proto.Clone(g.claim).(*models.CreateClaimRequest)
	if claim != nil {
		claim.Id = ids.NewClaim()
	}
	return &claimCalls{g.client, claim, g.ttl}
}

func (g *claimCalls) id() string { return g.claim.GetId() }

var errWaiting = status.Error(codes.Aborted, "the claim waits for its turn")

// missed reports whether a claim has ended because the servers heard nothing from this client.
func missed(e models.ClaimEndedError) bool {
	return e.Status == models.Status_STATUS_EXPIRED || e.Status == models.Status_STATUS_ABORTED && e.Reason == models.AbandonedReason
}
