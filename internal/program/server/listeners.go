package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"

	"github.com/locket-service/locket/console"
	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/doors/guard"
	"github.com/locket-service/locket/internal/doors/ops"
)

// listeners are a server's listeners. Disabled listeners are nil.
type listeners struct{ grpc, http, ops net.Listener }

// deadAfter is how long the other end of a connection may take to acknowledge data. The system's own limit is about a
// quarter of an hour; until then each lost stream of events would count as one of its client's watches. Over gRPC
// keepalive does the same.
const deadAfter = 30 * time.Second

// listen opens the listeners. Its errors name the flag of the address.
func listen(c Config) (*listeners, error) {
	l, config := &listeners{}, net.ListenConfig{Control: limitSilence}
	for _, each := range []struct {
		flag, address string
		listener      *net.Listener
	}{
		{"grpc-address", c.GRPCAddress, &l.grpc}, {"http-address", c.HTTPAddress, &l.http}, {"ops-address", c.OpsAddress, &l.ops},
	} {
		if each.address == "" {
			continue
		}
		listener, err := config.Listen(context.Background(), "tcp", each.address)
		if err != nil {
			l.close()
			if cause := (*net.OpError)(nil); errors.As(err, &cause) {
				err = cause.Err // the address is in the text already
			}
			return nil, fmt.Errorf("--%s %s: %w", each.flag, each.address, err)
		}
		*each.listener = listener
	}
	return l, nil
}

// close closes the listeners; some may be closed already.
func (l *listeners) close() {
	for _, listener := range []net.Listener{l.grpc, l.http, l.ops} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}

// members returns the servers of the open listeners, in their order of start.
func (l *listeners) members(c Config, service *Service, secured *security, certificates *certs.Server, registry *prometheus.Registry, log *slog.Logger) (grouper.Members, error) {
	grpcTLS, httpTLS := c.tlsOf(certificates)
	proxies, err := c.trustedProxies()
	if err != nil {
		return nil, err
	}
	var members grouper.Members
	pages := ops.Pages(registry, service.Ready, service.Warnings)
	maps.Copy(pages, console.Pages(secured.provider()))
	if l.ops != nil {
		pages["/metrics"] = nil // served by ops
		members = append(members, grouper.Member{Name: "ops", Runner: ops.New(ops.Config{
			Listener: l.ops, Metrics: registry, Ready: service.Ready, Warnings: service.Warnings, ShutdownTimeout: c.ShutdownTimeout, Log: log,
		})})
	}
	if l.http != nil {
		members = append(members, grouper.Member{Name: "http", Runner: gateway.New(gateway.Config{
			Listener: l.http, TLS: httpTLS, Hosts: c.HTTPHosts, Origins: c.HTTPOrigins, TrustedProxies: proxies, Headers: secured.headers, Arrive: secured.arrive(), Service: grpcserver.NewLocal(service.Chain, service.Register),
			Metrics: registry, Pages: pages, SignIn: secured.people(), Guard: guardMetrics(service.Chain), ShutdownTimeout: c.ShutdownTimeout, Log: log,
		})})
	}
	if l.grpc == nil { // calls that wait over HTTP, and streams, must end too
		return append(members, grouper.Member{Name: "drain", Runner: atEnd(func() {
			service.Chain.EndStreams()
			service.Drain()
		})}), nil
	}
	server := grpcserver.New(grpcserver.Config{
		Listener: l.grpc, TLS: grpcTLS, Chain: service.Chain, Stats: service.stats, Arrive: secured.arrive(), Register: service.Register,
		ShutdownTimeout: c.ShutdownTimeout, OnDrain: service.Drain, Log: log,
	})
	service.readiness.onChange = server.SetReady
	return append(members, grouper.Member{Name: "grpc", Runner: server}), nil
}

// guardMetrics returns the function that decides which callers may see the metrics at the HTTP listener.
func guardMetrics(chain *grpcserver.Chain) func(context.Context, string, func()) error {
	return func(ctx context.Context, _ string, serve func()) error {
		return chain.Page(ctx, guard.MetricsPage, serve)
	}
}

// atEnd returns a runner that only calls a function when it ends.
func atEnd(do func()) ifrit.Runner {
	return ifrit.RunFunc(func(signals <-chan os.Signal, ready chan<- struct{}) error {
		close(ready)
		<-signals
		do()
		return nil
	})
}

// tlsVersions are the values of TLSMinVersion.
var tlsVersions = map[string]uint16{"": tls.VersionTLS12, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// loadTLS returns the certificates, nil without TLS.
func loadTLS(c Config, files *follow.Set) (*certs.Server, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	bundles, err := c.spiffeBundles()
	if err != nil {
		return nil, err
	}
	return certs.LoadServer(certs.ServerFiles{Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA, CRL: c.TLSCRL, Bundles: bundles, MinVersion: tlsVersions[c.TLSMinVersion]}, files)
}

// tlsOf returns the configurations for gRPC and for HTTP, both nil without TLS. Both require a client certificate,
// unless there is another way of authentication. With HTTPAnonymous, HTTP accepts callers without one.
func (c Config) tlsOf(certificates *certs.Server) (forGRPC, forHTTP *tls.Config) {
	if certificates == nil {
		return nil, nil
	}
	overGRPC, overHTTP := tls.RequireAndVerifyClientCert, tls.RequireAndVerifyClientCert
	if c.HTTPAnonymous {
		overHTTP = tls.VerifyClientCertIfGiven
	}
	config, _ := c.authentication()
	switch {
	case c.TLSClientCA == "":
		overGRPC, overHTTP = tls.NoClientCert, tls.NoClientCert
	case config.OtherThanCertificates():
		overGRPC, overHTTP = tls.VerifyClientCertIfGiven, tls.VerifyClientCertIfGiven
	}
	return certificates.Config(overGRPC), certificates.Config(overHTTP)
}
