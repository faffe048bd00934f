package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/grpcserver"
	whole "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// addressLog keeps the address that a server says it serves on.
type addressLog struct {
	slog.Handler
	mu      sync.Mutex
	address string
}

func (l *addressLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *addressLog) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "address" {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.address = a.Value.String()
		}
		return true
	})
	return nil
}

// server is a running server.
type server struct {
	url     string
	conn    grpc.ClientConnInterface // to the service
	process ifrit.Process
	counter prometheus.Counter
	drain   func() // ends waiting calls, as the program does at shutdown
}

// shutdownTimeout is only reached if something blocks the shutdown.
const shutdownTimeout = time.Hour

// start starts a server before a service on a new database.
func start(t *testing.T, config *tls.Config, more ...prometheus.Collector) *server {
	t.Helper()
	return startAs(t, func(c *gateway.Config) { c.TLS = config }, more...)
}

// startAs starts a server with a changed configuration.
func startAs(t *testing.T, change func(*gateway.Config), more ...prometheus.Collector) *server {
	t.Helper()
	s := &server{counter: prometheus.NewCounter(prometheus.CounterOpts{Name: "test_total"})}
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(more, s.counter)...)
	log := &addressLog{Handler: slog.DiscardHandler}
	conn, drain := service(t, registry)
	s.conn, s.drain = conn, drain
	config := gateway.Config{
		Listener: fixtures.Listen(t), Service: conn,
		Metrics: registry, ShutdownTimeout: shutdownTimeout, Log: slog.New(log),
	}
	change(&config)
	s.process = ifrit.Invoke(gateway.New(config))
	s.url = "http://" + log.address
	if config.TLS != nil {
		s.url = "https://" + log.address
	}
	t.Cleanup(func() { s.stop(t) })
	return s
}

func (s *server) stop(t *testing.T) {
	t.Helper()
	s.process.Signal(os.Interrupt)
	if err := harness.Await(t, "end of the server", s.process.Wait()); err != nil {
		t.Errorf("the end: %v", err)
	}
}

// client returns one that keeps no connections when the test is over.
func client(t *testing.T, config *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: harness.HangTimeout}
}

func get(t *testing.T, c *http.Client, url string) (status int, body string, err error) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// service starts the program's service on a new database. It returns a connection to it, and a function that ends
// waiting calls.
func service(t testing.TB, registry *prometheus.Registry) (conn grpc.ClientConnInterface, drain func()) {
	t.Helper()
	store, err := replica.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	service := whole.NewService(whole.Config{DatabaseTimeout: 10 * time.Second, HistoryRetention: time.Hour, HistoryLimit: 1000}, store, log, registry, whole.Guards{})
	process := ifrit.Invoke(grouper.NewOrdered(os.Interrupt, service.Members))
	t.Cleanup(func() {
		service.Drain()
		process.Signal(os.Interrupt)
		if err := errors.Join(<-process.Wait(), store.Close()); err != nil {
			t.Errorf("the end of the service: %v", err)
		}
	})
	return grpcserver.NewLocal(service.Chain, service.Register), service.Drain
}

// answer is the client's view of an answer.
type answer struct {
	code   int
	header http.Header
	body   string
}

// do sends a request with a body of JSON, or with none, and headers given as "Name: value".
func do(t *testing.T, c *http.Client, method, url, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := c.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	must(t, err)
	return answer{resp.StatusCode, resp.Header, string(content)}
}

// says fails the test unless an answer has this code, and a body that contains the text.
func (a answer) says(t *testing.T, code int, text string) {
	t.Helper()
	if a.code != code || !strings.Contains(a.body, text) {
		t.Errorf("got %d %s, want %d and %q", a.code, a.body, code, text)
	}
}
