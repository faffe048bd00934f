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

	"github.com/locket-service/locket/internal/ids"
	"github.com/locket-service/locket/models"
)

// ClaimClient is what the runners of claims need of a client: a models.LocketClient, or a fake
// of these four methods. The calls must return when their contexts are done.
type ClaimClient interface {
	// CreateClaim makes a claim, or returns the one that an equal request with this id made.
	CreateClaim(ctx context.Context, in *models.CreateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
	// AwaitClaim returns the claim when it no longer waits, or after the timeout.
	AwaitClaim(ctx context.Context, in *models.AwaitClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
	// UpdateClaim renews the claim.
	UpdateClaim(ctx context.Context, in *models.UpdateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
	// EndClaim releases or withdraws the claim.
	EndClaim(ctx context.Context, in *models.EndClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
}

// NewClaimRunner returns a runner like that of NewLockRunner which waits for its turn in the
// queue of the resource, and may share it: it is ready once its claim is active, renews it,
// and ends with an error that wraps ErrLost as soon as it has lost it. The TTL is that of the
// claim, DefaultTTL if it has none. Pauses after failures last a quarter of the TTL at most,
// and one call waits for its turn for half of it at most, so that a grant is noticed while it
// lasts, also when the connection was silent.
//
// A claim without a wait TTL gets that of WithWaitTTL: when this process ends without a word, its
// place in the queue is free after this time.
//
// A claim without an owner gets a UniqueOwner, and one without an id gets a new id. An id that
// is given is that of the first run: each further run makes a new claim, and so does a run
// whose claim expired before anybody knew that it was active, or was aborted because the runner
// was cut off from all servers for its wait TTL.
//
// Runners wait independently of each other, also under one owner, so the claim may cause a deadlock
// (allow_deadlock).
func NewClaimRunner(client ClaimClient, claim *models.CreateClaimRequest, options ...Option) *Runner {
	claim, _ = proto.Clone(claim).(*models.CreateClaimRequest)
	settings := newClaimSettings(claim.GetTtl(), maxTTL, options)
	settings.retryInterval = min(settings.retryInterval, max(settings.ttl/4, 1))
	if claim != nil {
		claim.Ttl = proto.Float64(settings.ttl.Seconds())
		claim.Id = cmp.Or(claim.GetId(), ids.NewClaim())
		claim.Owner = settings.ownerOr(claim.GetOwner())
		claim.AllowDeadlock = true
		if claim.WaitTtl == nil && settings.waitTTL > 0 {
			claim.WaitTtl = proto.Float64(settings.waitTTL.Seconds())
		}
	}
	r := newCallRunner(settings, claim.GetResource(), claim.GetOwner(), &claimGrantor{client, claim, settings.ttl}, client != nil && claim != nil)
	r.exitOnLoss = true
	return r
}

// claimGrantor holds a claim by its id.
type claimGrantor struct {
	client ClaimClient
	claim  *models.CreateClaimRequest // never changed: late attempts use it
	ttl    time.Duration
}

func (g *claimGrantor) take(ctx, leave context.Context, token uint64) (uint64, time.Duration, error) {
	claim, err := g.ask(ctx, leave, token)
	switch {
	case err != nil:
		return 0, 0, err
	case claim.GetStatus() == models.Status_STATUS_WAITING:
		return 0, 0, errWaiting
	case claim.GetStatus() != models.Status_STATUS_ACTIVE:
		return 0, 0, endedError{claim.GetStatus(), claim.GetReason()}
	}
	// A claim that is found may have been active for a while.
	return claim.GetToken(), min(g.ttl, time.Duration(claim.GetTtl()*float64(time.Second))), nil
}

// ask renews the claim, or makes it, finds it again, and waits for its turn.
func (g *claimGrantor) ask(ctx, leave context.Context, token uint64) (*models.Claim, error) {
	if token != 0 {
		return g.client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: g.id(), Ttl: g.claim.Ttl}, grpc.WaitForReady(true))
	}
	claim, err := g.create(ctx)
	if err == nil && claim.GetStatus() == models.Status_STATUS_WAITING {
		return g.await(ctx, leave)
	}
	return claim, err
}

func (g *claimGrantor) create(ctx context.Context) (*models.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, g.createTimeout())
	defer cancel()
	return g.client.CreateClaim(ctx, g.claim, grpc.WaitForReady(true))
}

// await waits for the turn. The server answers in time for the answer to arrive before the
// deadline, which only passes when the connection or the server is stuck.
func (g *claimGrantor) await(ctx, leave context.Context) (*models.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, g.awaitTimeout())
	defer cancel()
	defer context.AfterFunc(leave, cancel)()
	return g.client.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: g.id(), Timeout: durationpb.New(g.awaitTimeout() * 4 / 5)})
}

// The two bounds leave a quarter of the time for which a grant lasts that was made right after
// AwaitClaim was sent, and whose answer was lost: it is found, and renewed, before it expires.
func (g *claimGrantor) createTimeout() time.Duration { return min(g.lasts()/4, maxAttempt) }
func (g *claimGrantor) awaitTimeout() time.Duration  { return min(g.lasts()/2, maxAttempt) }

// lasts returns for how long a grant lasts at least that nobody has renewed. While a call waits,
// half of the wait TTL is left.
func (g *claimGrantor) lasts() time.Duration {
	if g.claim.WaitTtl == nil {
		return g.ttl
	}
	return min(g.ttl, time.Duration(min(g.claim.GetWaitTtl()/2*float64(time.Second), math.MaxInt64)))
}

func (g *claimGrantor) release(ctx context.Context, _ uint64) error {
	_, err := g.client.EndClaim(ctx, &models.EndClaimRequest{Id: g.id()}, grpc.WaitForReady(true))
	return err
}

func (g *claimGrantor) watch(ctx context.Context, _ uint64, look func()) error {
	return watchGrant(ctx, g.client, g.claim.GetResource(), g.claim.GetOwner(), g.ttl, func(c *models.Claim) bool { return c.GetId() == g.id() }, look)
}

func (g *claimGrantor) exact(uint64) bool { return true }

func (g *claimGrantor) timeout(token uint64) time.Duration {
	if token == 0 {
		return g.createTimeout() + g.awaitTimeout()
	}
	return attemptTimeout(g.ttl)
}

func (g *claimGrantor) classify(err error) verdict {
	if err == errWaiting { //nolint:errorlint // take returns this very value
		return waiting
	}
	if final, isFinal := err.(endedError); isFinal { //nolint:errorlint // take returns this very type
		if final.missed() {
			return missed
		}
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

func (g *claimGrantor) next() grantor {
	claim, _ := proto.Clone(g.claim).(*models.CreateClaimRequest)
	if claim != nil {
		claim.Id = ids.NewClaim()
	}
	return &claimGrantor{g.client, claim, g.ttl}
}

func (g *claimGrantor) id() string { return g.claim.GetId() }

var errWaiting = status.Error(codes.Aborted, "the claim waits for its turn")

// endedError is how a claim has ended before it was active.
type endedError struct {
	status models.Status
	reason string
}

// missed reports whether it ended because this client was not heard of.
func (e endedError) missed() bool {
	return e.status == models.Status_STATUS_EXPIRED || e.status == models.Status_STATUS_ABORTED && e.reason == models.AbandonedReason
}

func (e endedError) Error() string {
	text := fmt.Sprintf("the claim ended while it waited: %s", e.status)
	if e.reason != "" {
		text += " (" + e.reason + ")"
	}
	return text
}
