package lock_test

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"google.golang.org/grpc"

	"github.com/locket-service/locket/committer"
	"github.com/locket-service/locket/db/sqlite"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/handlers"
	"github.com/locket-service/locket/upkeep"
	"github.com/locket-service/locket/watch"
)

// startServer starts a Locket for an example, as `locket server` does elsewhere: on a port
// of this machine, with SQLite in a temporary folder.
func startServer() (address string, stop func()) {
	folder, err := os.MkdirTemp("", "locket-example-")
	orPanic(err)
	store, err := sqlite.Open(filepath.Join(folder, "locket.db"))
	orPanic(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	orPanic(err)
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	hub := watch.NewHub(store, registry)
	queues := committer.New(store, committer.Config{
		Timeout: 10 * time.Second, Log: log, Metrics: committer.NewMetrics(registry), Listeners: []committer.Listener{hub},
	})
	server := ifrit.Invoke(grouper.NewOrdered(os.Interrupt, grouper.Members{
		{Name: "committer", Runner: queues},
		{Name: "sweeper", Runner: upkeep.NewSweeper(store, queues, log)},
		{Name: "grpc", Runner: grpcserver.New(grpcserver.Config{
			Listener: listener,
			Chain:    grpcserver.NewChain(log, registry),
			Register: func(s grpc.ServiceRegistrar) { handlers.Register(s, handlers.New(queues, hub, store, log)) },
			OnDrain:  hub.Stop, ShutdownTimeout: time.Second, Log: log,
		})},
	}))
	return listener.Addr().String(), func() {
		server.Signal(os.Interrupt)
		orPanic(errors.Join(<-server.Wait(), store.Close(), os.RemoveAll(folder)))
	}
}

func orPanic(err error) {
	if err != nil {
		panic(err)
	}
}
