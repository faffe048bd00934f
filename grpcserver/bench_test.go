package grpcserver_test

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// BenchmarkChain measures the chain's cost for a unary call that is not logged.
func BenchmarkChain(b *testing.B) {
	registry := prometheus.NewRegistry()
	limit := grpcserver.Limit(grpcserver.DefaultMaxRequests, registry)
	chain := grpcserver.NewChain(slog.New(slog.DiscardHandler), registry, limit)
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("user-agent", "x", ":authority", "y", "content-type", "application/grpc"))
	b.ReportAllocs()
	for b.Loop() {
		if err := chain.Page(ctx, models.Locket_Lock_FullMethodName, func() {}); err != nil {
			b.Fatal(err)
		}
	}
}
