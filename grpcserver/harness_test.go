package grpcserver_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shutdownTimeout = 3 * time.Second

// service lets a test define the handling of a request. Lock represents every unary call.
type service struct {
	models.UnimplementedLocketServer
	lock    func(ctx context.Context) error
	session func(stream grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]) error
}

func (s *service) Session(stream grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]) error {
	return s.session(stream)
}

func (s *service) Lock(ctx context.Context, _ *models.LockRequest) (*models.LockResponse, error) {
	return &models.LockResponse{}, s.lock(ctx)
}

// AwaitClaim ends as Lock does.
func (s *service) AwaitClaim(ctx context.Context, _ *models.AwaitClaimRequest) (*models.Claim, error) {
	return &models.Claim{}, s.lock(ctx)
}

// stream has a method for each kind of stream, with one handler: in Call both sides stream, in Down the server.
func (s *service) stream(handler grpc.StreamHandler) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "test.Stream", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "Call", Handler: handler, ServerStreams: true, ClientStreams: true},
			{StreamName: "Down", Handler: handler, ServerStreams: true},
		},
	}
}

// server is a running server with a client.
type server struct {
	models.LocketClient
	conn     *grpc.ClientConn
	local    *grpcserver.Local // another connection to the same service
	listener *bufconn.Listener
	process  ifrit.Process
	registry *prometheus.Registry
	logs     *logs
	drained  bool
}

type config struct {
	lock    func(ctx context.Context) error
	stream  grpc.StreamHandler
	session func(stream grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]) error
	guards  []grpcserver.Guard
	// observers are in their order.
	observers []grpcserver.Observer
	arrive    func(context.Context, func()) func()
	sent      func(message any)
}

// start is for bubbles.
func start(t *testing.T, c config) *server {
	t.Helper()
	s := &server{listener: bufconn.Listen(1 << 20), registry: prometheus.NewRegistry(), logs: &logs{}}
	if c.lock == nil {
		c.lock = func(context.Context) error { return nil }
	}
	service := &service{lock: c.lock, session: c.session}
	log := s.logs.logger()
	chain := grpcserver.NewChain(log, s.registry, c.guards...)
	for _, o := range c.observers {
		chain.Observe(o)
	}
	chain.OnSent(c.sent)
	register := func(r grpc.ServiceRegistrar) {
		models.RegisterLocketServer(r, service)
		if c.stream != nil {
			r.RegisterService(service.stream(c.stream), service)
		}
	}
	s.local = grpcserver.NewLocal(chain, register)
	s.process = ifrit.Invoke(grpcserver.New(grpcserver.Config{
		Listener:        s.listener,
		Chain:           chain,
		Arrive:          c.arrive,
		Register:        register,
		ShutdownTimeout: shutdownTimeout,
		OnDrain:         func() { s.drained = true },
		Log:             log,
	}))
	conn, err := grpc.NewClient("passthrough:///locket",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	s.conn, s.LocketClient = conn, models.NewLocketClient(conn)
	t.Cleanup(func() {
		s.stop(t)
		must(t, conn.Close())
	})
	return s
}

// stop makes the server shut down and waits for that.
func (s *server) stop(t testing.TB) {
	t.Helper()
	s.process.Signal(os.Interrupt)
	if err := <-s.process.Wait(); err != nil {
		t.Errorf("the end: %v", err)
	}
	if !s.drained {
		t.Error("nobody was notified of the end")
	}
}

// bubble runs a test with a fake clock.
func bubble(t *testing.T, c config, test func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, start(t, c)) })
}

// call sends a request, and returns when it runs or has been answered.
func (s *server) call(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.Lock(ctx, &models.LockRequest{})
		done <- err
	}()
	synctest.Wait()
	return done
}

func (s *server) health(t testing.TB, service string) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	t.Helper()
	resp, err := grpc_health_v1.NewHealthClient(s.conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
	return resp.GetStatus(), err
}

// logs is the log of a server.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(grpcserver.LogRequestID(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

// line returns the only line that contains a text.
func (l *logs) line(t testing.TB, text string) (found string) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			if found != "" {
				t.Errorf("%q was logged more than once", text)
			}
			found = line
		}
	}
	if found == "" {
		t.Errorf("%q was not logged:\n%s", text, l)
	}
	return found
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// startTLS serves on a real socket and returns the address.
func startTLS(t *testing.T, certificates *certs.Server) (address string) {
	t.Helper()
	listener := fixtures.Listen(t)
	process := ifrit.Invoke(grpcserver.New(grpcserver.Config{
		Listener:        listener,
		TLS:             certificates.Config(tls.RequireAndVerifyClientCert),
		Chain:           grpcserver.NewChain(slog.New(slog.DiscardHandler), prometheus.NewRegistry()),
		Register:        func(r grpc.ServiceRegistrar) { models.RegisterLocketServer(r, &service{}) },
		ShutdownTimeout: shutdownTimeout,
		OnDrain:         func() {},
		Log:             slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(func() {
		process.Signal(os.Interrupt)
		must(t, <-process.Wait())
	})
	return listener.Addr().String()
}
