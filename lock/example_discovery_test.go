package lock_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/discovery"
)

// Two backends announce their addresses, and a gRPC client finds them.
func Example_discovery() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	client, err := lock.NewClient([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	first, second := startBackend(ctx, client, "backends/1"), startBackend(ctx, client, "backends/2")

	conn, err := grpc.NewClient("locket:///backends/",
		grpc.WithResolvers(discovery.NewResolver(client)),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	fmt.Println("backends:", countBackends(ctx, conn, 2))
	first()
	fmt.Println("backends:", countBackends(ctx, conn, 1))
	second()

	// Output:
	// backends: 2
	// backends: 1
}

// startBackend starts a service that announces itself for as long as it runs.
func startBackend(ctx context.Context, client *lock.Client, key string) (stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	presence, err := client.Acquire(ctx, key, lock.WithPresence(listener.Addr().String()))
	if err != nil {
		log.Fatal(err)
	}
	return func() {
		if err := presence.Release(ctx); err != nil {
			log.Fatal(err)
		}
		server.Stop()
	}
}

// countBackends calls until as many backends answer, and returns how many did in the last ten calls.
func countBackends(ctx context.Context, conn *grpc.ClientConn, want int) int {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		seen := make(map[string]bool)
		for range 10 {
			var from peer.Peer
			if _, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true), grpc.Peer(&from)); err == nil {
				seen[from.Addr.String()] = true
			}
		}
		if len(seen) == want || ctx.Err() != nil {
			return len(seen)
		}
	}
}
