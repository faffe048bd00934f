// Package gateway serves HTTP as an ifrit runner: the metrics and the state of health.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config says how to serve.
type Config struct {
	Address string
	// TLS is nil for plain HTTP.
	TLS     *tls.Config
	Metrics prometheus.Gatherer
	// ShutdownTimeout is how long requests under way may take to finish.
	ShutdownTimeout time.Duration
	Log             *slog.Logger
}

// Server is an ifrit runner.
type Server struct{ config Config }

// New returns a server that listens once it runs.
func New(config Config) *Server { return &Server{config} }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.config.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// Run implements ifrit.Runner. It is ready when it listens.
func (s *Server) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	listener, err := net.Listen("tcp", s.config.Address)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	s.config.Log.Info("serving HTTP", "address", listener.Addr().String(), "tls", s.config.TLS != nil)
	if s.config.TLS != nil {
		listener = tls.NewListener(listener, s.config.TLS)
	}
	server := &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	close(ready)

	select {
	case err := <-served:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-signals:
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.config.ShutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return nil
}
