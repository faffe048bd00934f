package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"github.com/tedsuo/ifrit/sigmon"
	"google.golang.org/grpc"
	"google.golang.org/grpc/grpclog"

	"github.com/locket-service/locket/certs"
	"github.com/locket-service/locket/committer"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/handlers"
	"github.com/locket-service/locket/upkeep"
	"github.com/locket-service/locket/watch"
)

// Serve runs a server until this process gets SIGINT or SIGTERM, or one of its parts fails, and
// returns what went wrong: nil after a signal. Serve waits for a database that is not up;
// the end of ctx ends that wait. Once it serves, it writes a line for people to out; its log goes to
// standard error. It sets what the whole process shares: the garbage collector's target, unless
// $GOGC does, and the logger of gRPC.
func Serve(ctx context.Context, c Config, out io.Writer) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	log, err := newLogger(c)
	if err != nil {
		return err
	}
	tuneGC()
	// gRPC's own messages are about faults of clients: level debug.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer()))
	store, err := openStore(ctx, c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	group, err := newGroup(c, store, log)
	if err != nil {
		return err
	}
	process := ifrit.Invoke(sigmon.New(group, os.Interrupt))
	select {
	case <-process.Ready():
		fmt.Fprintln(out, greeting(c))
	default: // it has ended
	}
	err = <-process.Wait()
	log.Info("stopped")
	return err
}

// greeting says where the server listens, and what to try at once.
func greeting(c Config) string {
	text := fmt.Sprintf("Locket serves gRPC on %s and HTTP on %s, from %s.", c.GRPCAddress, c.HTTPAddress, engineOf(c.Database))
	if c.TLSCert != "" {
		return text
	}
	address := ""
	if c.GRPCAddress != DefaultGRPCAddress {
		address = " --address " + c.GRPCAddress
	}
	return text + fmt.Sprintf("\nTry: %s lock demo --owner me%s", os.Args[0], address)
}

// engineOf returns a database without what may be secret in it.
func engineOf(database string) string {
	engine, source, _ := strings.Cut(database, ":")
	if engine == "mysql" {
		return engine
	}
	return engine + ":" + source
}

// newGroup returns all long-lived runners, in the order in which they start; they stop
// in reverse. The guards decide about the calls of every door.
func newGroup(c Config, store db.Store, log *slog.Logger, guards ...grpcserver.Guard) (ifrit.Runner, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	grpcTLS, httpTLS, err := loadTLS(c, log)
	if err != nil {
		return nil, err
	}
	hub := watch.NewHub(store, registry)
	queues := committer.New(store, committer.Config{
		Timeout: c.DatabaseTimeout, Log: log, Metrics: committer.NewMetrics(registry), Listeners: []committer.Listener{hub},
	})
	chain := grpcserver.NewChain(log, registry, guards...)
	register := func(s grpc.ServiceRegistrar) { handlers.Register(s, handlers.New(queues, hub, store, log)) }
	return grouper.NewOrdered(os.Interrupt, grouper.Members{
		{Name: "committer", Runner: queues},
		{Name: "sweeper", Runner: upkeep.NewSweeper(store, queues, log)},
		{Name: "follower", Runner: watch.NewFollower(store, hub, log)},
		{Name: "janitor", Runner: upkeep.NewJanitor(store, c.HistoryRetention, c.HistoryLimit, log, registry)},
		{Name: "http", Runner: gateway.New(gateway.Config{
			Address: c.HTTPAddress, TLS: httpTLS, Service: grpcserver.NewLocal(chain, register),
			Metrics: registry, ShutdownTimeout: c.ShutdownTimeout, Log: log,
		})},
		{Name: "grpc", Runner: grpcserver.New(grpcserver.Config{
			Address:         c.GRPCAddress,
			TLS:             grpcTLS,
			Chain:           chain,
			Register:        register,
			ShutdownTimeout: c.ShutdownTimeout,
			OnDrain:         hub.Stop,
			Log:             log,
		})},
	}), nil
}

// loadTLS returns the configurations for gRPC, which wants the clients' certificates, and
// for HTTP, which takes them; both nil without TLS.
func loadTLS(c Config, log *slog.Logger) (forGRPC, forHTTP *tls.Config, err error) {
	if c.TLSCert == "" {
		return nil, nil, nil
	}
	certificates, err := certs.LoadServer(certs.ServerFiles{Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA}, log)
	if err != nil {
		return nil, nil, err
	}
	return certificates.Config(tls.RequireAndVerifyClientCert), certificates.Config(tls.VerifyClientCertIfGiven), nil
}

// tuneGC spends memory on speed: the live heap of a server is small, and with Go's default
// the collector runs tens of times a second under load.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
