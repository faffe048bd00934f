package grpcserver_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// refusing is a service that refuses every call.
type refusing struct {
	models.UnimplementedLocketServer
}

func (refusing) GetClaim(context.Context, *models.GetClaimRequest) (*models.Claim, error) {
	return nil, status.Error(codes.ResourceExhausted, "no room")
}

func (refusing) EndClaim(context.Context, *models.EndClaimRequest) (*models.Claim, error) {
	return nil, status.Error(codes.Internal, "broken")
}

func (refusing) UpdateClaim(context.Context, *models.UpdateClaimRequest) (*models.Claim, error) {
	panic("a bug")
}

// TestLinesAreFew: a server that refuses everything, and a server where everything fails, log few lines of each kind.
func TestLinesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs fixtures.Buffer
		chain := grpcserver.NewChain(slog.New(slog.NewTextHandler(&logs, nil)), prometheus.NewRegistry())
		client := models.NewLocketClient(grpcserver.NewLocal(chain, func(r grpc.ServiceRegistrar) {
			models.RegisterLocketServer(r, refusing{})
		}))
		for range 10_000 {
			_, _ = client.GetClaim(t.Context(), &models.GetClaimRequest{Id: "a"})
			_, _ = client.EndClaim(t.Context(), &models.EndClaimRequest{Id: "a"})
			_, _ = client.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: "a"})
			time.Sleep(time.Millisecond)
		}
		for _, line := range []string{"msg=request method=GetClaim", "level=ERROR msg=request", "msg=panic"} {
			if n := strings.Count(logs.String(), line); n < 100 || n > 111 {
				t.Errorf("%s: %d lines in 10 s", line, n)
			}
		}
	})
}
