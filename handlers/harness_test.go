package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/grpcserver"
	whole "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a whole server on a new database, with a client. In a bubble it uses the bubble's clock.
type server struct {
	models.LocketClient
	conn *grpc.ClientConn
	// connect returns another connection, which the caller closes.
	connect  func(...grpc.DialOption) *grpc.ClientConn
	logs     *fixtures.Buffer
	registry *prometheus.Registry
	// stop ends the server as its main does, and fails the test on an error.
	stop func()
}

func start(t testing.TB) *server {
	t.Helper()
	return startIn(t, t.TempDir())
}

// startIn starts a server on the database in a folder.
func startIn(t testing.TB, folder string) *server {
	t.Helper()
	return startWith(t, folder, asIs)
}

func asIs(s db.Store) db.Store { return s }

// startWith starts a server on the database in a folder, with a wrapper of its store.
func startWith(t testing.TB, folder string, wrap func(db.Store) db.Store, changes ...func(*whole.Config)) *server {
	t.Helper()
	return startWithLog(t, folder, wrap, slog.LevelDebug, changes...)
}

// startWithLog is startWith with a log of a level.
func startWithLog(t testing.TB, folder string, wrap func(db.Store) db.Store, level slog.Level, changes ...func(*whole.Config)) *server {
	t.Helper()
	return startGuarded(t, folder, wrap, level, whole.Guards{}, changes...)
}

// startGuarded is startWithLog with guards.
func startGuarded(t testing.TB, folder string, wrap func(db.Store) db.Store, level slog.Level, guards whole.Guards, changes ...func(*whole.Config)) *server {
	t.Helper()
	s := &server{logs: &fixtures.Buffer{}, registry: prometheus.NewRegistry()}
	log := slog.New(grpcserver.LogRequestID(slog.NewTextHandler(s.logs, &slog.HandlerOptions{Level: level})))
	real, err := replica.Open(filepath.Join(folder, "data"))
	if err != nil {
		t.Fatal(err)
	}
	store, registry := wrap(real), s.registry
	config := whole.Config{DatabaseTimeout: 10 * time.Second, HistoryRetention: 24 * time.Hour, HistoryLimit: 1000}
	for _, change := range changes {
		change(&config)
	}
	service := whole.NewService(config, store, log, registry, guards)
	listener := bufconn.Listen(1 << 20)
	process := ifrit.Invoke(grouper.NewOrdered(os.Interrupt, append(service.Members, grouper.Member{
		Name: "grpc", Runner: grpcserver.New(grpcserver.Config{
			Listener: listener, Chain: service.Chain, Register: service.Register,
			ShutdownTimeout: 10 * time.Second, OnDrain: service.Drain, Log: log,
		}),
	})))
	s.connect = func(options ...grpc.DialOption) *grpc.ClientConn {
		conn, err := grpc.NewClient("passthrough:///locket", append(options,
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
			grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	conn := s.connect()
	s.LocketClient, s.conn = models.NewLocketClient(conn), conn
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		process.Signal(os.Interrupt)
		if err := errors.Join(<-process.Wait(), conn.Close(), store.Close()); err != nil {
			t.Errorf("the end: %v", err)
		}
	}
	t.Cleanup(s.stop)
	return s
}

// bubble runs a test with a server and a fake clock.
func bubble(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, start(t)) })
}

func resource(key, owner string) *models.Resource {
	return &models.Resource{Key: key, Owner: owner, TypeCode: models.TypeCode_LOCK}
}

// lock takes a lock and returns its token.
func (s *server) lock(t testing.TB, key, owner string, ttl int64) uint64 {
	t.Helper()
	resp, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource(key, owner), TtlInSeconds: ttl})
	must(t, err)
	return resp.GetToken()
}

// renew renews the grant of a lock with this token.
func (s *server) renew(t testing.TB, key, owner string, token uint64) error {
	t.Helper()
	resp, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource(key, owner), TtlInSeconds: 60, Token: &token})
	if err == nil && resp.GetToken() != token {
		t.Errorf("renewed the grant with token %d, and got %d", token, resp.GetToken())
	}
	return err
}

// create makes a claim named by its id.
func (s *server) create(t testing.TB, resource, id string, ttl float64, more ...func(*models.CreateClaimRequest)) *models.Claim {
	t.Helper()
	req := &models.CreateClaimRequest{Resource: resource, Id: id, Ttl: &ttl}
	for _, change := range more {
		change(req)
	}
	c, err := s.CreateClaim(t.Context(), req)
	must(t, err)
	return c
}

// createAll makes n claims, many at a time, so that the server commits many of them together.
func (s *server) createAll(t testing.TB, n int, request func(i int) *models.CreateClaimRequest) {
	t.Helper()
	const atOnce = 50
	errs := make([]error, n)
	var callers sync.WaitGroup
	for caller := range atOnce {
		callers.Go(func() {
			for i := caller; i < n; i += atOnce {
				_, errs[i] = s.CreateClaim(t.Context(), request(i))
			}
		})
	}
	callers.Wait()
	must(t, errors.Join(errs...))
}

func shared(req *models.CreateClaimRequest) { req.Mode = models.Mode_MODE_SHARED }

func (s *server) get(t testing.TB, id string) *models.Claim {
	t.Helper()
	c, err := s.GetClaim(t.Context(), &models.GetClaimRequest{Id: id})
	must(t, err)
	return c
}

// end moves a claim to a final status.
func (s *server) end(t testing.TB, id string, to models.Status) *models.Claim {
	t.Helper()
	c, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Status: to})
	must(t, err)
	return c
}

func (s *server) list(t testing.TB, req *models.ListClaimsRequest) *models.ListClaimsResponse {
	t.Helper()
	resp, err := s.ListClaims(t.Context(), req)
	must(t, err)
	return resp
}

// ids returns the ids of claims, in one string.
func ids(claims []*models.Claim) string {
	text := ""
	for _, c := range claims {
		text += c.GetId() + " "
	}
	return text
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused fails the test unless err has this code and message.
func refused(t testing.TB, err error, code codes.Code, message string) {
	t.Helper()
	if got := status.Convert(err); got.Code() != code || got.Message() != message {
		t.Errorf("%s %q, want %s %q", got.Code(), got.Message(), code, message)
	}
}

// isError fails the test unless err is one of the errors of models, as Cloud Foundry's
// clients see it, with a reason.
func isError(t testing.TB, err, want error, reason string) {
	t.Helper()
	refused(t, err, status.Code(want), status.Convert(want).Message())
	wantReason(t, err, reason)
}

func wantReason(t testing.TB, err error, reason string) {
	t.Helper()
	info := models.ErrorInfoOf(err)
	if info.GetReason() != reason || info.GetDomain() != "locket" {
		t.Errorf("error info %v, want reason %s of locket", info, reason)
	}
}

// detail returns the detail of one type in an error, nil if there is none.
func detail[T any](err error) (found T) {
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(T); ok {
			return d
		}
	}
	return found
}

func near(t testing.TB, what string, got, want float64) {
	t.Helper()
	if diff := got - want; diff < -1e-9 || diff > 1e-9 {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func ptr[T any](v T) *T { return &v }

func number(prefix string, n int) string { return fmt.Sprintf("%s-%03d", prefix, n) }
