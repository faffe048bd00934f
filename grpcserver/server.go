// Package grpcserver, for this module only, serves gRPC as an ifrit runner: listener, TLS, health, reflection, and graceful shutdown. It has the
// one chain of interceptors that all calls pass (Chain), and the gateway's connection to services in its own
// process (Local).
package grpcserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
)

// Config configures a Server.
type Config struct {
	// Listener is where to serve. The server closes it.
	Listener net.Listener
	// Register adds the services.
	Register func(grpc.ServiceRegistrar)
	// Chain is passed by all calls. Its streams end when the server does.
	Chain *Chain
	// Arrive is called when the header of a call has arrived, with its peer and metadata. It must not wait. It returns
	// a function to call when the message has arrived too, or nil; cut ends the call before that. With a nil Arrive,
	// calls may take any time.
	Arrive func(ctx context.Context, cut func()) (arrived func())
	// Stats, unless it is nil, is notified of events of calls, before the Chain.
	Stats stats.Handler
	// TLS is nil for plain gRPC.
	TLS *tls.Config
	// ShutdownTimeout is how long running requests may take to finish.
	ShutdownTimeout time.Duration
	// OnDrain is called when the shutdown begins: it must make waiting calls return.
	OnDrain func()
	Log     *slog.Logger
}

// Server is an ifrit runner.
type Server struct {
	config   Config
	health   *health.Server
	services serviceNames // the services of config.Register
}

// serviceNames collects the names of the services that are registered with it.
type serviceNames []string

// RegisterService implements grpc.ServiceRegistrar.
func (n *serviceNames) RegisterService(desc *grpc.ServiceDesc, _ any) {
	*n = append(*n, desc.ServiceName)
}

// New returns a server that serves once it runs.
func New(config Config) *Server {
	s := &Server{config: config, health: health.NewServer()}
	if config.Register != nil {
		config.Register(&s.services)
	}
	s.health.SetServingStatus(grpc_health_v1.Health_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	s.SetReady(true)
	return s
}

// SetReady sets whether the health service reports each service as serving, by its name; at first all are. The health
// of the whole server, which has the empty name, stays SERVING while the process runs. SetReady is safe for concurrent
// use, and does nothing after the shutdown.
func (s *Server) SetReady(ready bool) {
	state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ready {
		state = grpc_health_v1.HealthCheckResponse_SERVING
	}
	for _, name := range s.services {
		s.health.SetServingStatus(name, state)
	}
}

// Run implements ifrit.Runner. It is ready at once. On a signal all health becomes NOT_SERVING, new connections
// are refused, waiting calls return, and running requests may finish; it returns nil.
func (s *Server) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	options := Options(s.config.TLS, s.config.Chain)
	if s.config.Arrive != nil {
		options = append(options, grpc.InTapHandle(arriving(s.config.Arrive)))
	}
	if s.config.Stats != nil {
		options = append(options, grpc.StatsHandler(s.config.Stats))
	}
	server := grpc.NewServer(options...)
	grpc_health_v1.RegisterHealthServer(server, s.health)
	s.config.Register(server)
	reflection.Register(server)

	served := make(chan error, 1)
	go func() { served <- server.Serve(s.config.Listener) }()
	s.config.Log.Info("serving gRPC", "address", s.config.Listener.Addr().String())
	close(ready)

	select {
	case err := <-served:
		return fmt.Errorf("serve gRPC: %w", err)
	case <-signals:
	}
	s.health.Shutdown()
	s.config.Chain.EndStreams()
	s.config.OnDrain()
	s.stop(server)
	return nil
}

// stop waits for the running requests, and cancels requests that take too long.
func (s *Server) stop(server *grpc.Server) {
	late := time.AfterFunc(s.config.ShutdownTimeout, func() {
		s.config.Log.Warn("requests are cut off", "after", s.config.ShutdownTimeout)
		server.Stop()
	})
	defer late.Stop()
	server.GracefulStop()
}
