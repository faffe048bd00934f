package cli

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/models"
)

// sparse is a server with a page without resources before the last one.
type sparse struct{ models.LocketClient }

func (sparse) ListResources(_ context.Context, req *models.ListResourcesRequest, _ ...grpc.CallOption) (*models.ListResourcesResponse, error) {
	if req.GetPageToken() == "" {
		return &models.ListResourcesResponse{NextPageToken: "next"}, nil
	}
	return &models.ListResourcesResponse{Resources: []*models.ResourceInfo{{Resource: "a"}}}, nil
}

// A page may have nothing though more follow.
func TestEmptyPage(t *testing.T) {
	t.Parallel()
	c := &connect.Connection{LocketClient: sparse{}, Settings: connect.Settings{Timeout: time.Minute}}
	for _, limit := range []int{0, 1, 5} {
		list, more, err := listResources(t.Context(), c, &models.ListResourcesRequest{}, limit)
		if len(list) != 1 || more || err != nil {
			t.Errorf("limit %d: %v, more: %v, %v", limit, list, more, err)
		}
	}
}

// slow is a server with one claim that needs most of the timeout for each answer.
type slow struct{ models.LocketClient }

const (
	slowTimeout = 10 * time.Second
	slowAnswer  = 6 * time.Second
	slowClaim   = "06hn3v5k8m3q2f7zj9c2m5t8v0"
)

func answerSlowly(ctx context.Context) error {
	select {
	case <-time.After(slowAnswer): // real time: none, in a bubble
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (slow) GetClaim(ctx context.Context, _ *models.GetClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	if err := answerSlowly(ctx); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.NotFound, "claim-not-found")
}

func (slow) ListClaims(ctx context.Context, _ *models.ListClaimsRequest, _ ...grpc.CallOption) (*models.ListClaimsResponse, error) {
	return &models.ListClaimsResponse{Claims: []*models.Claim{{Id: slowClaim}}}, answerSlowly(ctx)
}

func (slow) UpdateClaim(ctx context.Context, req *models.UpdateClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	return &models.Claim{Id: req.GetId(), Resource: "a"}, answerSlowly(ctx)
}

// Each request of a command has the whole timeout, also after the requests that complete an id.
func TestTimeoutOfEachRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		c := &connect.Connection{LocketClient: slow{}, Settings: connect.Settings{Timeout: slowTimeout}}
		view, err := updateClaim(cmd, c, &models.UpdateClaimRequest{Id: slowClaim[:10]})
		if err != nil || view.Names()[0] != slowClaim {
			t.Errorf("%v, %v", view, err)
		}
	})
}
