package server

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// A call whose credentials are being checked does not count against the limit of requests; an authenticated one does.
func TestLimitIsBehindAuthentication(t *testing.T) {
	store, err := replica.Open(filepath.Join(t.TempDir(), "data"))
	must(t, err)
	defer func() { must(t, store.Close()) }()
	reached, refuse := make(chan string), make(chan error)
	stop := func(where string) grpcserver.Guard {
		return func(context.Context, *grpcserver.Call, func(context.Context) error) error {
			reached <- where
			return <-refuse
		}
	}
	pass := func(ctx context.Context, _ *grpcserver.Call, next func(context.Context) error) error {
		return next(ctx)
	}
	config := Config{DatabaseTimeout: time.Second, HistoryRetention: time.Hour, HistoryLimit: 1}
	for _, c := range []struct {
		guards Guards
		want   float64
	}{
		{Guards{Who: []grpcserver.Guard{stop("who")}}, 0},
		{Guards{Who: []grpcserver.Guard{pass}, May: []grpcserver.Guard{stop("may")}}, 1},
	} {
		registry := prometheus.NewRegistry()
		service := NewService(config, store, slog.New(slog.DiscardHandler), registry, c.guards)
		client := models.NewLocketClient(grpcserver.NewLocal(service.Chain, service.Register))
		answer := make(chan error)
		go func() {
			_, err := client.WhoAmI(t.Context(), &models.WhoAmIRequest{})
			answer <- err
		}()
		where := <-reached
		if got := gauge(t, registry, "locket_requests_under_way"); got != c.want {
			t.Errorf("at the guard %s %v requests are under way, want %v", where, got, c.want)
		}
		refuse <- status.Error(codes.Unauthenticated, "refused")
		if err := <-answer; status.Code(err) != codes.Unauthenticated {
			t.Error(err)
		}
	}
}

func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
