package simulation_test

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// roaming is the connection of a runner of package lock. It goes to another server after each failure.
type roaming struct {
	*client
	server atomic.Int64
}

func (r *roaming) present() *server { return r.servers[int(r.server.Load())%len(r.servers)] }

func (r *roaming) do(do func(models.LocketClient) error) error {
	err := do(models.NewLocketClient(r.Over(r.connectionTo(r.present()))))
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		r.server.Add(1)
	}
	return err
}

// CreateClaim implements lock.ClaimClient.
func (r *roaming) CreateClaim(ctx context.Context, in *models.CreateClaimRequest, _ ...grpc.CallOption) (out *models.Claim, err error) {
	err = r.do(func(c models.LocketClient) error { out, err = c.CreateClaim(ctx, in); return err })
	return out, err
}

// AwaitClaim implements lock.ClaimClient.
func (r *roaming) AwaitClaim(ctx context.Context, in *models.AwaitClaimRequest, _ ...grpc.CallOption) (out *models.Claim, err error) {
	err = r.do(func(c models.LocketClient) error { out, err = c.AwaitClaim(ctx, in); return err })
	return out, err
}

// UpdateClaim implements lock.ClaimClient.
func (r *roaming) UpdateClaim(ctx context.Context, in *models.UpdateClaimRequest, _ ...grpc.CallOption) (out *models.Claim, err error) {
	err = r.do(func(c models.LocketClient) error { out, err = c.UpdateClaim(ctx, in); return err })
	return out, err
}

// EndClaim implements lock.ClaimClient.
func (r *roaming) EndClaim(ctx context.Context, in *models.EndClaimRequest, _ ...grpc.CallOption) (out *models.Claim, err error) {
	err = r.do(func(c models.LocketClient) error { out, err = c.EndClaim(ctx, in); return err })
	return out, err
}
