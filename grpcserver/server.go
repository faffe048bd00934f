// Package grpcserver serves gRPC as an ifrit runner: listener, TLS, health, reflection, and an
// orderly end. It has the one chain of interceptors that calls pass at every door (Chain), and
// the connection by which the gateway calls services in its own process (Local).
package grpcserver

import (
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
)

// Config says how to serve.
type Config struct {
	// Address is where to listen. Not used when Listener is set.
	Address  string
	Listener net.Listener
	// Register adds the services.
	Register func(grpc.ServiceRegistrar)
	// Chain is what the calls pass. Its streams end when the server does.
	Chain *Chain
	// TLS is nil for plain gRPC.
	TLS *tls.Config
	// ShutdownTimeout is how long requests under way may take to finish.
	ShutdownTimeout time.Duration
	// OnDrain is called when the end begins: it makes waiting calls return.
	OnDrain func()
	Log     *slog.Logger
}

// Server is an ifrit runner.
type Server struct{ config Config }

// New returns a server that listens once it runs.
func New(config Config) *Server { return &Server{config: config} }

// Run implements ifrit.Runner. It is ready when it listens. On a signal
// health turns NOT_SERVING, new connections are refused, waiting calls are sent away, and
// requests under way may finish; it returns nil.
func (s *Server) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	listener, err := s.listen()
	if err != nil {
		return err
	}
	server := grpc.NewServer(Options(s.config.TLS, s.config.Chain)...)
	healthServer := health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, healthServer)
	s.config.Register(server)
	for name := range server.GetServiceInfo() {
		healthServer.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	reflection.Register(server)

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.config.Log.Info("serving gRPC", "address", listener.Addr().String())
	close(ready)

	select {
	case err := <-served:
		return fmt.Errorf("serve gRPC: %w", err)
	case <-signals:
	}
	healthServer.Shutdown()
	s.config.Chain.endStreams()
	s.config.OnDrain()
	s.stop(server)
	return nil
}

func (s *Server) listen() (net.Listener, error) {
	if s.config.Listener != nil {
		return s.config.Listener, nil
	}
	listener, err := net.Listen("tcp", s.config.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for gRPC: %w", err)
	}
	return listener, nil
}

// stop waits for the requests under way, and cuts off those that take too long.
func (s *Server) stop(server *grpc.Server) {
	late := time.AfterFunc(s.config.ShutdownTimeout, func() {
		s.config.Log.Warn("requests are cut off", "after", s.config.ShutdownTimeout)
		server.Stop()
	})
	defer late.Stop()
	server.GracefulStop()
}
