// Package grpcserver serves gRPC as an ifrit runner: listener, TLS, interceptors, health,
// reflection, and an orderly end.
package grpcserver

import (
	"context"
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
	// Options are those of the gRPC server: see Options.
	Options []grpc.ServerOption
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

// Run implements ifrit.Runner. It is ready when it listens. When it is told to stop,
// health turns NOT_SERVING, new connections are refused, waiting calls are sent away, and
// requests under way may finish; it returns nil.
func (s *Server) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	listener, err := s.listen()
	if err != nil {
		return err
	}
	streams := newStreams()
	server := grpc.NewServer(append(s.config.Options,
		grpc.ChainStreamInterceptor(streams.intercept, recoverStream(s.config.Log)))...)
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
	streams.end()
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

// streams ends the streaming calls (health watches, reflection) when the server ends:
// they would go on for ever.
type streams struct {
	context.Context
	cancel context.CancelFunc
}

func newStreams() *streams {
	ctx, cancel := context.WithCancel(context.Background())
	return &streams{ctx, cancel}
}

// lastWord is how long a health watch has to send NOT_SERVING.
const lastWord = 100 * time.Millisecond

func (s *streams) end() { time.AfterFunc(lastWord, s.cancel) }

type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *endingStream) Context() context.Context { return s.ctx }

// intercept runs the handler beside itself, out of reach of the recovery that is before
// it: there must be another one behind it.
func (s *streams) intercept(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s, cancel)()
	done := make(chan error, 1)
	go func() { done <- handler(srv, &endingStream{stream, ctx}) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done(): // a stream that is blocked in Recv ends when this returns
		return ctx.Err()
	}
}
