package main

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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"github.com/tedsuo/ifrit/sigmon"
	"google.golang.org/grpc"
	"google.golang.org/grpc/grpclog"

	"github.com/locket-service/locket/committer"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/db/sqlite"
	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/handlers"
)

func newServerCommand() *cobra.Command {
	var (
		c    config
		file string
	)
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Serve locks and claims",
		Long: `Serve locks and claims over gRPC and REST.

Every flag can also be given as an environment variable (--grpc-address as
LOCKET_GRPC_ADDRESS) or in the JSON file of --config, by its name; a flag comes
before the environment, and that before the file. The file may also be one of
Cloud Foundry's Locket.`,
		Example: `  locket server
  locket server --database 'mysql:locket:secret@tcp(127.0.0.1:3306)/locket'
  locket server --grpc-address 0.0.0.0:8891 --tls-cert s.crt --tls-key s.key --tls-client-ca ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.load(cmd, file); err != nil {
				return err
			}
			return serve(cmd.Context(), c, cmd.OutOrStdout())
		},
	}
	c.add(cmd.Flags())
	cmd.Flags().StringVar(&file, "config", "", "a JSON file of settings")
	return cmd
}

// serve runs a server until it is told to stop.
func serve(ctx context.Context, c config, out io.Writer) (err error) {
	log, err := newLogger(c)
	if err != nil {
		return err
	}
	tuneGC()
	// What the libraries say of their clients' faults is for who looks for it only.
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
func greeting(c config) string {
	text := fmt.Sprintf("Locket serves gRPC on %s and HTTP on %s, from %s.", c.grpcAddress, c.httpAddress, engineOf(c.database))
	if c.tlsCert != "" {
		return text
	}
	address := ""
	if c.grpcAddress != defaultGRPCAddress {
		address = " --address " + c.grpcAddress
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

// newGroup returns everything that lives long, in the order in which it starts; it stops
// in the other order.
func newGroup(c config, store db.Store, log *slog.Logger) (ifrit.Runner, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	grpcTLS, httpTLS, err := loadTLS(c, log)
	if err != nil {
		return nil, err
	}
	metrics := committer.NewMetrics(registry)
	queues := committer.New(store, committer.Config{Timeout: c.databaseTimeout, Log: log, Metrics: metrics})
	observer := grpcserver.NewObserver(log, registry)
	register := func(s grpc.ServiceRegistrar) { handlers.Register(s, handlers.New(queues, store, log)) }
	return grouper.NewOrdered(os.Interrupt, grouper.Members{
		{Name: "committer", Runner: queues},
		{Name: "sweeper", Runner: committer.NewSweeper(store, queues, log)},
		{Name: "follower", Runner: committer.NewFollower(store, queues, log)},
		{Name: "janitor", Runner: committer.NewJanitor(store, c.historyRetention, c.historyLimit, log, metrics)},
		{Name: "http", Runner: gateway.New(gateway.Config{
			Address: c.httpAddress, TLS: httpTLS, Service: grpcserver.NewLocal(observer, register),
			Metrics: registry, ShutdownTimeout: c.shutdownTimeout, Log: log,
		})},
		{Name: "grpc", Runner: grpcserver.New(grpcserver.Config{
			Address:         c.grpcAddress,
			Options:         grpcserver.Options(grpcTLS, observer),
			Register:        register,
			ShutdownTimeout: c.shutdownTimeout,
			OnDrain:         queues.StopWaiting,
			Log:             log,
		})},
	}), nil
}

// loadTLS returns the configurations for gRPC, which wants the clients' certificates, and
// for HTTP, which takes them; both nil without TLS.
func loadTLS(c config, log *slog.Logger) (forGRPC, forHTTP *tls.Config, err error) {
	if c.tlsCert == "" {
		return nil, nil, nil
	}
	certificates, err := grpcserver.LoadCertificates(grpcserver.Files{Cert: c.tlsCert, Key: c.tlsKey, ClientCA: c.tlsCA}, log)
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

// retryStart is how long to wait between two tries to reach the database.
const retryStart = time.Second

// openStore opens the database, waiting for it for a while if it is not up.
func openStore(ctx context.Context, c config, log *slog.Logger) (db.Store, error) {
	giveUp := time.Now().Add(c.databaseWait)
	for {
		store, err := open(ctx, c)
		if !errors.Is(err, db.ErrUnavailable) || time.Now().After(giveUp) {
			return store, err
		}
		log.Warn("waiting for the database", "error", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryStart):
		}
	}
}

func open(ctx context.Context, c config) (db.Store, error) {
	engine, source, _ := strings.Cut(c.database, ":")
	switch engine {
	case "sqlite":
		if source == "" || source == ":memory:" { // SQLite would serve, and keep nothing
			return nil, fmt.Errorf("--database: %q names no file; give sqlite:FILE", c.database)
		}
		return sqlite.Open(source)
	case "mysql":
		return mysql.Open(ctx, source)
	default:
		return nil, fmt.Errorf("--database: %q is no engine; give sqlite:FILE or mysql:USER:PASSWORD@tcp(HOST:PORT)/NAME", engine)
	}
}

func newLogger(c config) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch c.logFormat {
	case "text":
		handler = slog.NewTextHandler(os.Stderr, options)
	case "json":
		handler = slog.NewJSONHandler(os.Stderr, options)
	case "auto":
		handler = slog.NewJSONHandler(os.Stderr, options)
		if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			handler = slog.NewTextHandler(os.Stderr, options)
		}
	default:
		return nil, fmt.Errorf("--log-format: %q: must be text, json or auto", c.logFormat)
	}
	return slog.New(grpcserver.LogRequestID(handler)), nil
}
