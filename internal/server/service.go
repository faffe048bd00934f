package server

import (
	"context"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit/grouper"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/handlers"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer"
	"github.com/locket-service/locket/internal/periodic"
	"github.com/locket-service/locket/internal/session"
	"github.com/locket-service/locket/internal/tracing"
	"github.com/locket-service/locket/internal/upkeep"
	"github.com/locket-service/locket/internal/watch"
)

// Service is the service models.Locket on a store, without the doors through which calls come.
// Whoever embeds it runs its Members, in this order, before its doors, and stops them in reverse.
type Service struct {
	// Members are the runners of the service.
	Members grouper.Members
	// Chain is what every call passes, to be given to each door.
	Chain *grpcserver.Chain
	// Register adds the service to a door.
	Register func(grpc.ServiceRegistrar)
	// Drain sends the waiting calls away: a door calls it when its end begins.
	Drain func()

	readiness *readiness
	queues    *committer.Committer
	stats     stats.Handler // nil: no traces
}

// trace has the calls traced. Without it they cost what they would without traces.
func (s *Service) trace(t *tracing.Tracing) {
	s.queues.Trace(t)
	s.Chain.ObserveFirst(t.Observe)
	s.stats = t.StatsHandler()
}

// Guards are those of the calls, in their order. Between them stands the limit of requests under way:
// a call that is refused because of its caller takes no room from others.
type Guards struct {
	// Who finds out who calls.
	Who []grpcserver.Guard
	// May decides whether that is allowed.
	May []grpcserver.Guard
}

// NewService returns the service of a configuration. It uses DatabaseTimeout,
// MaxWaiting, MaxSessions and the History settings. Its metrics are registered. The guards decide about the
// calls of every door.
func NewService(c Config, store db.Store, log *slog.Logger, registry prometheus.Registerer, guards Guards) *Service {
	hub := watch.NewHub(store, registry)
	queues := committer.New(store, committer.Config{
		Timeout: c.DatabaseTimeout, Log: log, Metrics: committer.NewMetrics(registry), Listeners: []committer.Listener{hub},
	})
	sweeper := upkeep.NewSweeper(watchSweeps(store, registry), queues, log)
	self := newMember()
	sessions := session.New(queues, hub, store, session.Config{Name: self.Name, Sessions: c.MaxSessions, Due: sweeper.DueAt}, registry)
	var options []handlers.Option
	if c.MaxWaiting > 0 {
		options = append(options, handlers.MaxWaiting(c.MaxWaiting))
	}
	ready := newReadiness(store, queues.Health, log, registry)
	if store, ok := store.(interface{ Warnings() []string }); ok {
		ready.database = store.Warnings
	}
	options = append(options, handlers.Status((&serviceStatus{store: store, readiness: ready, self: self}).get))
	limit := []grpcserver.Guard{grpcserver.Limit(grpcserver.DefaultMaxRequests, registry)}
	return &Service{
		Members: grouper.Members{
			{Name: "committer", Runner: queues},
			{Name: "sweeper", Runner: sweeper},
			{Name: "follower", Runner: watch.NewFollower(store, hub, log)},
			{Name: "wait-renewer", Runner: watch.NewWaitRenewer(hub, doer(queues), log)},
			{Name: "janitor", Runner: upkeep.NewJanitor(store, upkeep.History{Retention: c.HistoryRetention, Limit: c.HistoryLimit, Minimum: c.HistoryMinimum}, log, registry)},
			{Name: "settler", Runner: upkeep.NewSettler(store, doer(queues), log)},
			{Name: "sessions", Runner: sessions},
			{Name: "announcer", Runner: announcer(store, self, log)},
			{Name: "readiness", Runner: periodic.New(readyInterval, ready.check)},
		},
		readiness: ready,
		queues:    queues,
		Chain:     grpcserver.NewChain(log, registry, slices.Concat(guards.Who, limit, guards.May)...),
		Register: func(s grpc.ServiceRegistrar) {
			handlers.Register(s, handlers.New(queues, hub, sessions, store, log, options...))
		},
		Drain: func() {
			ready.end()
			hub.Stop()
			sessions.Stop()
		},
	}
}

// doer carries out commands of this server's own.
func doer(queues *committer.Committer) func(context.Context, claim.Command) error {
	return func(ctx context.Context, cmd claim.Command) error {
		_, err := queues.Do(ctx, cmd)
		return err
	}
}

// Ready returns nil if the service can answer requests, else why not: the database takes no
// commits or does not answer, or its clock has stepped. It asks nothing of the database.
func (s *Service) Ready(ctx context.Context) error { return s.readiness.Check(ctx) }

// Warnings returns what an operator has to mend though the server answers requests.
func (s *Service) Warnings() []string { return s.readiness.warnings() }
