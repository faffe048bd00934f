package lock

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/ids"
	"github.com/locket-service/locket/lock/internal/lease"
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

// NewClaimRunner returns a runner like that of NewLockRunner which waits in the queue in the
// queue of the resource, and may share it: it is ready once its claim is active, renews it,
// and ends with an error that wraps ErrLost as soon as it has lost it. The TTL is that of the
// claim, DefaultTTL if it has none. Pauses after failures last a quarter of the TTL at most,
// and one call waits in the queue for half of it at most, so that a grant is noticed while it
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
// Runners wait independently of each other, also under one owner, so the claim allows deadlocks (allow_deadlock), but for
// WithoutDeadlock.
func NewClaimRunner(client ClaimClient, claim *models.CreateClaimRequest, options ...Option) *Runner {
	claim, _ = proto.Clone(claim).(*models.CreateClaimRequest)
	settings := newClaimSettings(claim.GetTtl(), maxTTL, options)
	settings.RetryInterval = min(settings.RetryInterval, max(settings.TTL/4, 1))
	if claim != nil {
		claim.Ttl = proto.Float64(settings.TTL.Seconds())
		claim.Id = cmp.Or(claim.GetId(), ids.NewClaim())
		claim.Owner = settings.ownerOr(claim.GetOwner())
		claim.AllowDeadlock = !settings.noDeadlock
		if claim.WaitTtl == nil && settings.WaitTTL > 0 {
			claim.WaitTtl = proto.Float64(settings.WaitTTL.Seconds())
		}
		settings.wrong = errors.Join(
			settings.wrong, checkText("id", claim.GetId()), checkText("value", claim.GetValue()), checkText("user data", claim.GetUserData()),
		)
	}
	return &Runner{
		settings: settings, key: claim.GetResource(), owner: claim.GetOwner(), exitOnLoss: true, usable: client != nil && claim != nil,
		holder: lease.NewClaims(client, claim, settings.Settings),
	}
}
