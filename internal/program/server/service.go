package server

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit/grouper"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/handlers"
	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/doors/tracing"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/quota"
	"github.com/locket-service/locket/internal/service/session"
	"github.com/locket-service/locket/internal/service/upkeep"
	"github.com/locket-service/locket/internal/service/waits"
	"github.com/locket-service/locket/internal/service/watch"
	"github.com/locket-service/locket/models"
)

// Service is the service models.Locket on a store, without listeners. A program that embeds it runs its Members, in
// this order, before its listeners, and stops them in reverse.
type Service struct {
	// Members are the runners of the service.
	Members grouper.Members
	// Chain is passed by every call; each listener needs it.
	Chain *grpcserver.Chain
	// Register adds the service to a listener's server.
	Register func(grpc.ServiceRegistrar)
	// Drain ends the waiting calls. A listener's server calls it when it begins to shut down.
	Drain func()

	readiness *readiness
	queues    *committer.Committer
	hub       *watch.Hub
	stats     stats.Handler    // nil without tracing
	tracing   *tracing.Tracing // nil without
}

func (s *Service) trace(t *tracing.Tracing) {
	s.tracing = t
	s.queues.Trace(t)
	s.hub.Trace(t)
	s.Chain.ObserveFirst(t.Observe)
	s.stats = t.StatsHandler()
}

// Guards are the guards of the calls, in their order. The limit of concurrent requests is between the two: a call that
// is refused because of its caller takes no room from others.
type Guards struct {
	// Who are the guards that authenticate the caller.
	Who []grpcserver.Guard
	// May authorizes the call.
	May []grpcserver.Guard
}

// clusterGather is the committer's Config.Gather on a server of a cluster, long enough for a busy machine: an append to etcd costs three machines about 1 ms of
// processor time.
const clusterGather = 20 * time.Millisecond

// NewService returns the service of a configuration, and registers its metrics. It uses DatabaseTimeout, MaxWaiting,
// MaxSessions and the History settings. The guards decide about the calls of every listener.
func NewService(c Config, store db.Store, log *slog.Logger, registry prometheus.Registerer, guards Guards) *Service {
	hub := watch.NewHub(store, registry)
	var gather time.Duration
	if c.hasCluster() {
		gather = clusterGather
	}
	queues := committer.New(store, committer.Config{
		Gather: gather, Timeout: c.DatabaseTimeout, Log: log, Metrics: committer.NewMetrics(registry), Listeners: []committer.Listener{hub, newEndings(log)}, Refused: hub.Refusals.Count,
		Guard: quota.New(store, hub.Refusals.Count),
	})
	sweeper := upkeep.NewSweeper(store, queues, log)
	registry.MustRegister(metric.GaugeFunc("locket_last_sweep_age_seconds", "Time since this server last looked for leases that have run out, with an answer.",
		func() float64 { return time.Since(sweeper.Looked()).Seconds() }))
	deadlocks := newDetector(store, queues, log, registry)
	self := newMember()
	sessions := session.New(queues, hub, store, session.Config{Name: self.Name, Sessions: c.MaxSessions, Due: sweeper.DueAt}, registry)
	ready := newReadiness(store, queues.Health, log, registry)
	ready.database = func() []string { return store.About().Warnings }
	janitor := upkeep.NewJanitor(store, upkeep.History{Retention: c.HistoryRetention, Limit: c.HistoryLimit, Minimum: c.HistoryMinimum}, log, registry)
	service := &Service{
		Members: grouper.Members{
			{Name: "committer", Runner: queues},
			{Name: "sweeper", Runner: sweeper},
			{Name: "deadlocks", Runner: deadlocks},
			{Name: "follower", Runner: watch.NewFollower(store, hub, log)},
			{Name: "wait-renewer", Runner: watch.NewWaitRenewer(hub, doer(queues), log)},
			{Name: "janitor", Runner: janitor},
			{Name: "granter", Runner: upkeep.NewGranter(store, doer(queues), log)},
			{Name: "sessions", Runner: sessions},
			{Name: "announcer", Runner: announcer(store, self, log)},
			{Name: "readiness", Runner: periodic.New(readyInterval, ready.check)},
		},
		readiness: ready,
		queues:    queues,
		hub:       hub,
		Chain:     newChain(guards, log, registry),
		Drain: func() {
			ready.end()
			hub.Stop()
			sessions.Stop()
		},
	}
	handler := sync.OnceValue(func() models.LocketServer { // one for all listeners: its limits apply to the whole server
		status := &serviceStatus{store: store, readiness: ready, self: self, deadlocks: deadlocks.Allowed, census: janitor.Census, stood: queues.Stood}
		config := handlers.Config{
			Committer: queues, Hub: hub, Sessions: sessions, Store: store, Status: status.get, Deadlocks: deadlocks.Lasting, MaxWaiting: c.MaxWaiting, Log: log,
		}
		if service.tracing != nil {
			config.Trace = service.tracing.Command
		}
		return handlers.New(config)
	})
	service.Register = func(s grpc.ServiceRegistrar) { handlers.Register(s, handler()) }
	return service
}

func newChain(guards Guards, log *slog.Logger, registry prometheus.Registerer) *grpcserver.Chain {
	limit := grpcserver.Limit(grpcserver.DefaultMaxRequests, registry)
	chain := grpcserver.NewChain(log, registry, slices.Concat(guards.Who, []grpcserver.Guard{limit}, guards.May)...)
	chain.OnSent(handlers.Sent)
	return chain
}

// newDetector returns a detector of deadlocks that hears of all commits, and aborts claims by commands of its own.
func newDetector(store db.Store, queues *committer.Committer, log *slog.Logger, registry prometheus.Registerer) *waits.Detector {
	detector := waits.NewDetector(store, func(ctx context.Context, cmd claim.Command) (claim.Claim, error) {
		result, err := queues.Do(ctx, cmd)
		return result.Claim, err
	}, log, registry)
	queues.Listen(detector)
	return detector
}

// doer runs commands of the server itself.
func doer(queues *committer.Committer) func(context.Context, claim.Command) error {
	return func(ctx context.Context, cmd claim.Command) error {
		_, err := queues.Do(ctx, cmd)
		return err
	}
}

// Ready returns nil if the service can answer requests, otherwise the reason: the database takes no commits or does not
// answer, or its clock has stepped. It does not access the database.
func (s *Service) Ready(ctx context.Context) error { return s.readiness.Check(ctx) }

// Warnings returns problems that an operator should fix although the server answers requests.
func (s *Service) Warnings() []string { return s.readiness.warnings() }
