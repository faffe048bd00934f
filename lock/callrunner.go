package lock

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/lock/internal/lease"
	"github.com/locket-service/locket/models"
)

// LockClient has the methods that NewLockRunner and NewPresenceRunner need. models.LocketClient implements it; tests
// use fakes. Calls must return when their contexts are done. A server that gives no tokens leaves the token unset. If
// the client also has Watch, as models.LocketClient does, the runner learns at once when somebody else ends its grant.
type LockClient interface {
	// Lock takes the lock of a resource for its owner, or renews it. It returns errors as models.LocketClient does;
	// ErrLockCollision and ErrResourceNotFound mean that it is not held.
	Lock(ctx context.Context, in *models.LockRequest, opts ...grpc.CallOption) (*models.LockResponse, error)
	// Release ends the grant with the token, or without one whatever the owner holds.
	Release(ctx context.Context, in *models.ReleaseRequest, opts ...grpc.CallOption) (*models.ReleaseResponse, error)
}

// ClaimClient has the methods that NewClaimRunner needs. models.LocketClient implements it; tests use fakes. Calls
// must return when their contexts are done.
type ClaimClient interface {
	// CreateClaim makes a claim. If an equal request with this id made one already, it returns it.
	CreateClaim(ctx context.Context, in *models.CreateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
	// AwaitClaim returns the claim when it no longer waits, or after the timeout.
	AwaitClaim(ctx context.Context, in *models.AwaitClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
	// UpdateClaim renews the claim.
	UpdateClaim(ctx context.Context, in *models.UpdateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
	// EndClaim releases or withdraws the claim.
	EndClaim(ctx context.Context, in *models.EndClaimRequest, opts ...grpc.CallOption) (*models.Claim, error)
}

// NewClaimRunner returns a runner that waits in the queue of the resource, and may share it. It is ready once its
// claim is active, renews it at a third of the TTL, and ends with an error that wraps ErrLost as soon as it has lost
// it. A claim without a TTL gets DefaultTTL. After a failure the runner pauses for at most a quarter of the TTL, and
// one call waits in the queue for at most half of it, so that it finds a grant in time even if the connection was
// silent.
//
// A claim without a wait TTL gets the time of WithWaitTTL: if this process dies, its place in the queue is free after
// this time.
//
// A claim without an owner gets a UniqueOwner, and without an id a new id. A given id applies to the first run; later
// runs make new claims. A run also makes a new claim if the old one expired before the runner knew that it was active,
// or was aborted because the runner could reach no server for its wait TTL.
//
// Runners wait independently of each other, even under one owner, so the claim allows deadlocks (allow_deadlock)
// unless WithoutDeadlock is given.
func NewClaimRunner(client ClaimClient, claim *models.CreateClaimRequest, options ...Option) *Runner {
	claim, _ = proto.Clone(claim).(*models.CreateClaimRequest)
	settings := newClaimSettings(claim.GetTtl(), maxTTL, options)
	settings.RetryInterval = min(settings.RetryInterval, max(settings.TTL/4, 1))
	if claim != nil {
		claim.Ttl = proto.Float64(settings.TTL.Seconds())
		claim.Id = cmp.Or(claim.GetId(), ids.NewClaim())
		claim.Owner = settings.ownerOr(claim.GetOwner())
		claim.AllowDeadlock = !settings.noDeadlock
		var wrong error
		if seconds := claim.GetWaitTtl(); claim.WaitTtl != nil {
			wrong = unless(seconds >= 1 && seconds <= maxTTL.Seconds(), "the wait TTL is %vs, and must be 1s to 100 years", seconds)
		} else if settings.WaitTTL > 0 {
			claim.WaitTtl = proto.Float64(settings.WaitTTL.Seconds())
		}
		settings.wrong = errors.Join(
			settings.wrong, wrong, checkText("id", claim.GetId()), checkText("value", claim.GetValue()), checkText("user data", claim.GetUserData()),
		)
	}
	return &Runner{
		settings: settings, key: claim.GetResource(), owner: claim.GetOwner(), exitOnLoss: true, usable: client != nil && claim != nil,
		holder: lease.NewClaims(client, claim, settings.Settings),
	}
}
