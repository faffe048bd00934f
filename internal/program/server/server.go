package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"google.golang.org/grpc/grpclog"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/base/notify"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/doors/guard"
	"github.com/locket-service/locket/internal/doors/tracing"
)

// Serve runs a server until ctx ends or one of its parts fails, and returns the error: nil after the end of ctx, even
// while Serve waits for an unavailable database. Once it serves, it writes a text for people to out; its log goes to
// standard error. In Cloud Foundry's formats the log goes to out instead, and the text is omitted. Serve notifies a
// service manager ($NOTIFY_SOCKET) when it has started, reloads and ends, and feeds its watchdog. It sets process-wide
// state: the target of the garbage collector, unless $GOGC is set, the logger of gRPC,
// and SIGPIPE, which it ignores.
func Serve(ctx context.Context, c Config, out io.Writer) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // a closed log is no reason to stop
	log, lines, err := openLog(c, out)
	if err != nil {
		return err
	}
	defer lines.flush()
	defer func() { logExit(c, log, err) }()
	logIgnored(c, log)
	hangups := make(chan os.Signal, 1) // without an audit log SIGHUP has no effect, rather than end the server
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	tuneGC()
	// gRPC logs faults of clients: they go to level debug.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer()))
	files := follow.NewSet(log)
	if c.Node != "" {
		c.node, err = startNode(ctx, c, files, log, lines.flush)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		defer func() { err = errors.Join(err, c.node.Close()) }()
	}
	store, err := openStore(ctx, c, files, log)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	listeners, err := listen(c)
	if err != nil {
		return err
	}
	defer listeners.close()
	group, err := newGroup(c, store, listeners, files, log)
	if err != nil {
		return err
	}
	return run(ctx, c, group, out, log)
}

// unlessEnded returns an error, nil if a signal came while Serve waited for the database or for other servers.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// logExit logs the end of a server.
func logExit(c Config, log *slog.Logger, err error) {
	switch {
	case err == nil:
		log.Info("exited")
	case c.isLager(): // otherwise the caller reports the error
		log.Error("exited with failure", "error", err)
	}
}

// logIgnored warns of settings that have no effect.
func logIgnored(c Config, log *slog.Logger) {
	if len(c.IgnoredFields) > 0 {
		log.Warn("fields of the configuration file without effect", "fields", c.IgnoredFields)
	}
	if len(c.UnknownVariables) > 0 {
		log.Warn("variables of the environment without effect", "variables", c.UnknownVariables)
	}
}

// run runs the group of all runners until ctx ends or one of them does, and tells the service manager.
func run(ctx context.Context, c Config, group ifrit.Runner, out io.Writer, log *slog.Logger) error {
	process := ifrit.Background(group)
	manager := notify.New(os.Getenv)
	defer context.AfterFunc(ctx, func() {
		tell(manager.Stopping, log)
		process.Signal(os.Interrupt)
	})()
	select {
	case <-process.Ready():
		log.Info("started")
		tell(manager.Ready, log)
		if !c.isLager() {
			fmt.Fprintln(out, greeting(c))
		}
	case err := <-process.Wait():
		return causes(err)
	}
	return causes(<-process.Wait())
}

// tell notifies the service manager, and logs an error: the service continues.
func tell(what func() error, log *slog.Logger) {
	if err := what(); err != nil {
		log.Error("the service manager cannot be told", "error", err)
	}
}

// causes returns why a group ended: the errors of its members, by their names, without the members that ended because
// of others.
func causes(err error) error {
	trace, is := errors.AsType[grouper.ErrorTrace](err)
	if !is {
		return err
	}
	var failed []error
	for _, exit := range trace {
		if exit.Err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", exit.Member.Name, exit.Err))
		}
	}
	return errors.Join(failed...)
}

// greeting returns a text about where the server listens, and a first command to try.
func greeting(c Config) string {
	var open []string
	for _, listener := range []struct{ name, address string }{{"gRPC", c.GRPCAddress}, {"HTTP", c.HTTPAddress}, {"operations", c.OpsAddress}} {
		if listener.address != "" {
			open = append(open, listener.name+" on "+listener.address)
		}
	}
	text := fmt.Sprintf("Locket serves %s, from %s.", strings.Join(open, " and "), c.DatabaseName())
	if c.HTTPAddress != "" {
		scheme := "http"
		if c.TLSCert != "" {
			scheme = "https"
		}
		text += fmt.Sprintf("\nConsole: %s://%s/console/", scheme, c.HTTPAddress)
	}
	if c.TLSCert != "" || c.GRPCAddress == "" {
		return text
	}
	address := ""
	if c.GRPCAddress != DefaultGRPCAddress {
		address = " --address " + c.GRPCAddress
	}
	return text + fmt.Sprintf("\nTry: %s lock demo --owner me --ttl 5m%s", os.Args[0], address)
}

// engineOf returns a database without its secrets.
func engineOf(database string) string {
	engine, source, _ := strings.Cut(database, ":")
	if engine == engineMySQL {
		return engine
	}
	return engine + ":" + source
}

// newGroup returns all long-lived runners, in their order of start; they stop in reverse. The guards decide
// about the calls of every listener, after the configuration's guards.
func newGroup(c Config, store db.Store, listeners *listeners, files *follow.Set, log *slog.Logger, guards ...grpcserver.Guard) (ifrit.Runner, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	certificates, err := loadTLS(c, files)
	if err != nil {
		return nil, err
	}
	secured, err := newSecurity(c, certificates, files, log, registry)
	if err != nil {
		return nil, err
	}
	before := grouper.Members{{Name: "files", Runner: periodic.New(follow.Interval, files.Look)}}
	if broken := store.About().Broken; broken != nil {
		before = append(before, grouper.Member{Name: "database", Runner: untilFailed(broken, func(struct{}) error { return store.About().Failure })})
	}
	if c.node != nil {
		before = append(before, grouper.Member{Name: "etcd", Runner: untilFailed(c.node.Failed(), func(err error) error { return err })})
	}
	failing, manager := func() error { return nil }, notify.New(os.Getenv)
	if c.AuditLog != "" {
		audit, err := auditCalls(c, secured, files, log, registry)
		if err != nil {
			return nil, err
		}
		audit.reload, failing = manager.Reload, audit.failing
		before = append(before, grouper.Member{Name: "audit", Runner: audit})
	}
	secured.guards.May = append(secured.guards.May, guards...)
	service := NewService(c, store, log, registry, secured.guards)
	traces, err := tracing.New(context.Background(), os.Getenv, log)
	if err != nil {
		return nil, err
	}
	if traces != nil {
		service.trace(traces)
		secured.headers = append(slices.Clip(secured.headers), tracing.Headers...)
		before = append(grouper.Members{{Name: "traces", Runner: traces}}, before...)
	}
	service.readiness.bad = files.Problems
	if manager.Watched() {
		service.readiness.feed = manager.Feed
	}
	service.readiness.audit, service.readiness.auditRequired = failing, c.AuditRequired
	members, err := listeners.members(c, service, secured, certificates, registry, log)
	if err != nil {
		return nil, err
	}
	return grouper.NewOrdered(os.Interrupt, slices.Concat(before, service.Members, members)), nil
}

// auditCalls opens the audit log, and adds the guards that write to it.
func auditCalls(c Config, secured *security, files *follow.Set, log *slog.Logger, registry *prometheus.Registry) (*auditFile, error) {
	proxies, err := c.trustedProxies()
	if err != nil {
		return nil, err
	}
	audit, err := openAudit(c.AuditLog, log, registry)
	if err != nil {
		return nil, err
	}
	lines := audit.auditing(c.AuditRequired)
	lines.Proxies = proxies
	files.OnChange(guard.AuditFile(lines.Lines))
	secured.guards.Who = slices.Concat([]grpcserver.Guard{guard.Audit(lines, registry)}, secured.guards.Who, []grpcserver.Guard{guard.Record()})
	return audit, nil
}
