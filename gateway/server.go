// Package gateway, for this module only, serves HTTP as an ifrit runner: claims, resources and locks over REST
// (docs/sources.md), which it translates into calls of the service, and the metrics.
//
// operations.go has a row for each operation: its route, the RPC that carries it out, and its description. The
// parameters of requests are in parameters.go, the answers in answer.go.
package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/base/serve"
)

// Config configures a Server.
type Config struct {
	// Listener is where to serve. The server closes it.
	Listener net.Listener
	// TLS is nil for plain HTTP.
	TLS *tls.Config
	// Hosts are the host names, without ports, that are accepted in requests, beside IP addresses, localhost and the
	// machine's name. With TLS every name is accepted. If Hosts is empty, other names are refused on loopback only,
	// where they may belong to a page whose name resolves to loopback (DNS rebinding).
	Hosts []string
	// Origins are the origins, in addition to the server's own, whose pages may use the server (CORS), like
	// https://console.example.com.
	Origins []string
	// TrustedProxies are the addresses of proxies whose headers X-Forwarded-Proto, X-Forwarded-Host and
	// X-Forwarded-Prefix are used for the URLs in answers. From others they are ignored.
	TrustedProxies []netip.Prefix
	// Service is a connection to the service models.Locket. The contexts of its calls have the client's peer.Peer, and
	// their metadata the request id.
	Service grpc.ClientConnInterface
	// Headers are the names, in lower case, of the headers that become metadata of the calls, beside the request id,
	// Authorization and X-Forwarded-For.
	Headers []string
	// Arrive is called when the header of a request with a body has arrived, with the client's peer and the metadata
	// that its calls will have. It returns a function to call when the body has arrived too, or nil; cut ends the
	// request before that. With a nil Arrive, requests may take any time.
	Arrive func(ctx context.Context, cut func()) (arrived func())
	// Metrics are served at /metrics. The gateway's own are added.
	Metrics *prometheus.Registry
	// Pages are handlers of GET, by path, which are added to the gateway's own pages or replace them. A nil handler
	// removes a page. Of all pages, Guard protects only /metrics.
	Pages map[string]http.Handler
	// SignIn is how people sign in at the console; nil for not at all.
	SignIn SignIn
	// Guard, unless it is nil, decides whether a caller may see the metrics, by its peer and the metadata that its
	// calls would have. It calls serve, or returns an error.
	Guard func(ctx context.Context, page string, serve func()) error
	// ShutdownTimeout is how long running requests may take to finish.
	ShutdownTimeout time.Duration
	Log             *slog.Logger
}

// Server is an ifrit runner.
type Server struct {
	config   Config
	requests *prometheus.CounterVec
}

// New returns a server that serves once it runs.
func New(config Config) *Server {
	requests := metric.CounterVec("locket_http_requests_total", "Number of HTTP requests, by method and code.", []string{"method", "code"})
	config.Metrics.MustRegister(requests)
	return &Server{config, requests}
}

// handler returns the handler of all requests.
func (s *Server) handler() (http.Handler, error) {
	mux, err := newMux(s.config)
	if err != nil {
		return nil, fmt.Errorf("route HTTP: %w", err)
	}
	origins, err := newOrigins(s.config.Origins)
	if err != nil {
		return nil, err
	}
	return promhttp.InstrumentHandlerCounter(s.requests, common(s.config, origins, gzhttp.GzipHandler(mux))), nil
}

// Run implements ifrit.Runner. It is ready at once.
func (s *Server) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	handler, err := s.handler()
	if err != nil {
		return err
	}
	listener := s.config.Listener
	s.config.Log.Info("serving HTTP", "address", listener.Addr().String(), "tls", s.config.TLS != nil)
	if s.config.TLS != nil {
		listener = tls.NewListener(listener, s.config.TLS)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:          slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	return serve.Until(signals, ready, server, listener, s.config.ShutdownTimeout)
}
