package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/sigmon"
	"google.golang.org/grpc"

	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/handlers"
	"github.com/locket-service/locket/internal/committer"
	"github.com/locket-service/locket/internal/session"
	"github.com/locket-service/locket/internal/watch"
	"github.com/locket-service/locket/models"
)

// serve serves a service as the real server does: same options, same collector.
func serve(address string, service models.LocketServer) error {
	debug.SetGCPercent(400)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	server := grpcserver.New(grpcserver.Config{
		Address:         address,
		Chain:           grpcserver.NewChain(log, prometheus.NewRegistry()),
		Register:        func(s grpc.ServiceRegistrar) { handlers.Register(s, service) },
		ShutdownTimeout: time.Second,
		OnDrain:         func() {},
		Log:             log,
	})
	return <-ifrit.Invoke(sigmon.New(server)).Wait()
}

// echo answers at once with messages of the size of the real ones.
type echo struct {
	models.UnimplementedLocketServer
	token atomic.Uint64
}

func (e *echo) Lock(context.Context, *models.LockRequest) (*models.LockResponse, error) {
	return &models.LockResponse{Token: 1_800_000_000_000_000 + e.token.Add(1)}, nil
}

func (e *echo) Release(context.Context, *models.ReleaseRequest) (*models.ReleaseResponse, error) {
	return &models.ReleaseResponse{}, nil
}

func serveEcho(args []string) error { return serve(args[0], &echo{}) }

// singles is how many transactions run at once in the server without group commit.
const singles = 32

// single is what Locket would be without group commit: each request is a transaction of
// its own, many of them at once.
type single struct {
	models.UnimplementedLocketServer
	services []models.LocketServer
	next     atomic.Uint64
}

func (s *single) pick() models.LocketServer { return s.services[s.next.Add(1)%singles] }

func (s *single) Lock(ctx context.Context, req *models.LockRequest) (*models.LockResponse, error) {
	return s.pick().Lock(ctx, req)
}

func (s *single) Release(ctx context.Context, req *models.ReleaseRequest) (*models.ReleaseResponse, error) {
	return s.pick().Release(ctx, req)
}

func serveSingle(args []string) error {
	address, dsn := args[0], args[1]
	log := slog.New(slog.DiscardHandler)
	s := &single{}
	for range singles {
		store, err := mysql.Open(context.Background(), dsn)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		registry := prometheus.NewRegistry()
		hub := watch.NewHub(store, registry)
		c := committer.New(store, committer.Config{
			MaxBatch: 1, Timeout: 10 * time.Second, Log: log, Metrics: committer.NewMetrics(registry), Listeners: []committer.Listener{hub},
		})
		<-ifrit.Invoke(c).Ready()
		s.services = append(s.services, handlers.New(c, hub, session.New(c, hub, store, session.Config{}, registry), store, log))
	}
	if len(s.services) == 0 {
		return errors.New("no store")
	}
	return serve(address, s)
}
