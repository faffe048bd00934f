// Package ops is the HTTP server for operators: whether the server is alive and ready, its metrics, its
// profiles. It is plain HTTP, reads only, and passes no guard, so it belongs on an address that
// only operators reach.
//
//	GET /healthz        200 while the process serves
//	GET /readyz         200 when requests can be answered, otherwise 503; the body says why
//	GET /metrics        for Prometheus
//	GET /debug/pprof/   profiles, for `go tool pprof`
//
// Pages has the first three, for an HTTP server that also serves other pages.
package ops

import (
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/internal/base/serve"
)

// Config configures the server.
type Config struct {
	// Listener is where to serve. The server closes it.
	Listener net.Listener
	Metrics  prometheus.Gatherer
	Ready    Ready
	// Warnings may be nil.
	Warnings Warnings
	// ShutdownTimeout is how long requests under way may take to finish.
	ShutdownTimeout time.Duration
	Log             *slog.Logger
}

// Server is an ifrit runner.
type Server struct{ config Config }

// New returns a server that serves once it runs.
func New(config Config) *Server { return &Server{config} }

// Run implements ifrit.Runner. It is ready at once.
func (s *Server) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	served := handler(s.config.Metrics, s.config.Ready, s.config.Warnings)
	if at, ok := s.config.Listener.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
		served = onLoopback(served)
	}
	server := &http.Server{
		Handler:           served,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      5 * time.Minute, // profiles last as long as their caller says
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	s.config.Log.Info("serving operations", "address", s.config.Listener.Addr().String())
	return serve.Until(signals, ready, server, s.config.Listener, s.config.ShutdownTimeout)
}
