package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
)

// clients makes clients and sessions over one network. They are closed at the end of the test.
type clients struct {
	*locktest.Network
	t *testing.T
}

// option makes a client that the test creates itself connect over the network.
func (c clients) option() lock.ClientOption { return lock.WithDial(c.Option()) }

func (c clients) session(options ...lock.ClientOption) *lock.Session {
	c.t.Helper()
	s, err := lock.NewSession(anyAddress, append(options, c.option())...)
	must(c.t, err)
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		must(c.t, s.Close(ctx))
	})
	return s
}

// sessions returns sessions whose owners are s0, s1, and so on.
func (c clients) sessions(count int) []*lock.Session {
	c.t.Helper()
	all := make([]*lock.Session, count)
	for i := range all {
		all[i] = c.session(lock.WithOwner(fmt.Sprint("s", i)))
	}
	return all
}

func (c clients) client(options ...lock.ClientOption) *lock.Client {
	c.t.Helper()
	client, err := lock.NewClient(anyAddress, append(options, c.option())...)
	must(c.t, err)
	c.t.Cleanup(func() { must(c.t, client.Close()) })
	return client
}

// dial returns a client for calls.
func (c clients) dial(options ...conn.Option) models.LocketClient {
	c.t.Helper()
	opened, err := lock.Dial(anyAddress, append(options, c.Option())...)
	must(c.t, err)
	c.t.Cleanup(func() { must(c.t, opened.Close()) })
	return models.NewLocketClient(opened)
}

var anyAddress = []string{"127.0.0.1:1"}

// world is a whole server on a new database, as `locket server` runs it, and the network between it and its clients.
type world struct {
	clients
	folder string
	guards server.Guards // of the next start

	mu       sync.Mutex
	listener *locktest.Listener
	process  ifrit.Process // nil while it is stopped
	store    *replica.Store
	beats    atomic.Int64 // of the server

	calling, direct models.LocketClient // the clients of rpc and own; nil until they are needed
	// before and after are set by failing and answering.
	before, after func(ctx context.Context, method string) error
	// calls counts the requests of rpc, by method.
	calls map[string]int
}

// inWorld runs a test with a fake clock and a server.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Minute) }) // for clients' background work
		test(t, newWorld(t))
	})
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{folder: filepath.Join(newFolder(t), "data"), calls: make(map[string]int)}
	w.t = t
	w.clients = w.beside()
	w.start()
	t.Cleanup(w.stop)
	return w
}

// beside makes clients over another network.
func (w *world) beside() clients {
	return clients{&locktest.Network{Connect: func(ctx context.Context, _ string) (net.Conn, error) {
		w.mu.Lock()
		listener := w.listener
		w.mu.Unlock()
		return listener.DialContext(ctx)
	}}, w.t}
}

// newFolder returns a new folder, in memory if the machine has a suitable file system. Writing to a busy disk would
// stop the time of a bubble, and let leases of processes run out.
func newFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "locket-lock-") //nolint:usetesting // the folder is in memory
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(folder)) })
	return folder
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// second returns the second result of a call, its error.
func second[T any](_ T, err error) error { return err }

// start starts the server; it may be called again after stop.
func (w *world) start() {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := replica.Open(w.folder)
	must(w.t, err)
	service := server.NewService(server.Config{DatabaseTimeout: 10 * time.Second, HistoryRetention: time.Hour, HistoryLimit: 1000}, counting{store, &w.beats}, log, prometheus.NewRegistry(), w.guards)
	listener := locktest.Listen()
	process := ifrit.Invoke(grouper.NewOrdered(os.Interrupt, append(service.Members, grouper.Member{
		Name: "grpc", Runner: grpcserver.New(grpcserver.Config{
			Listener: listener, Chain: service.Chain, Register: service.Register, OnDrain: service.Drain, ShutdownTimeout: time.Second, Log: log,
		}),
	})))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listener, w.process, w.store = listener, process, store
}

// counting is a store that counts its beats.
type counting struct {
	*replica.Store
	beats *atomic.Int64
}

// Beat implements db.Pulse.
func (s counting) Beat(ctx context.Context, resumes bool) error {
	s.beats.Add(1)
	return s.Store.Beat(ctx, resumes)
}

// stop stops the server.
func (w *world) stop() {
	w.t.Helper()
	if w.process == nil {
		return
	}
	w.process.Signal(os.Interrupt)
	if err := errors.Join(<-w.process.Wait(), w.store.Close()); err != nil {
		w.t.Errorf("the end of the server: %v", err)
	}
	w.process = nil
}

// restart stops the server, and starts it after a while.
func (w *world) restart(after time.Duration) {
	w.t.Helper()
	w.stop()
	time.Sleep(after)
	w.start()
}

// rpc returns a client for calls. failing, answering and count apply to its calls.
func (w *world) rpc() models.LocketClient {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calling == nil {
		w.calling = w.dial(conn.WithDialOptions(grpc.WithUnaryInterceptor(w.intercept)))
	}
	return w.calling
}

func (w *world) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	w.mu.Lock()
	w.calls[filepath.Base(method)]++
	before := w.before
	w.mu.Unlock()
	if before != nil {
		if err := before(ctx, filepath.Base(method)); err != nil {
			return err
		}
	}
	err := invoker(ctx, method, req, reply, cc, opts...)
	w.mu.Lock()
	after := w.after
	w.mu.Unlock()
	if after != nil {
		err = errors.Join(err, after(ctx, filepath.Base(method)))
	}
	return err
}

// count returns how many requests of a method were sent.
func (w *world) count(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[method]
}

// failing sets a function that is called before each request is sent; its error becomes the error of the call. nil removes it.
func (w *world) failing(before func(ctx context.Context, method string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

// answering sets a function that is called when the answer to a request has come; its error replaces the answer. nil removes it.
func (w *world) answering(after func(ctx context.Context, method string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after = after
}

// hang returns when the deadline of the call has passed.
func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// only calls a function for only some methods.
func only(f func(ctx context.Context, method string) error, methods ...string) func(ctx context.Context, method string) error {
	return func(ctx context.Context, method string) error {
		if !slices.Contains(methods, method) {
			return nil
		}
		return f(ctx, method)
	}
}

// saying returns an error with a code.
func saying(code codes.Code) func(context.Context, string) error {
	return func(context.Context, string) error { return status.Error(code, "the test says so") }
}

// own returns a client for the test itself, over another network. failing and answering do not apply to it.
func (w *world) own() models.LocketClient {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.direct == nil {
		w.direct = w.beside().dial()
	}
	return w.direct
}

// holder returns the owner that holds a key, "" if none does, and the token.
func (w *world) holder(key string) (owner string, token uint64) {
	w.t.Helper()
	got, err := w.own().Fetch(w.t.Context(), &models.FetchRequest{Key: key})
	if err != nil {
		return "", 0
	}
	return got.GetResource().GetOwner(), got.GetToken()
}

// holds fails the test unless the owner holds each of the keys; "" if no owner does.
func (w *world) holds(owner string, keys ...string) {
	w.t.Helper()
	for _, key := range keys {
		if got, _ := w.holder(key); got != owner {
			w.t.Errorf("%q holds %s, and %q should", got, key, owner)
		}
	}
}

// make creates a claim by own.
func (w *world) make(claim *models.CreateClaimRequest) {
	w.t.Helper()
	must(w.t, second(w.own().CreateClaim(w.t.Context(), claim)))
}

func (w *world) get(id string) *models.Claim {
	w.t.Helper()
	c, err := w.own().GetClaim(w.t.Context(), &models.GetClaimRequest{Id: id})
	must(w.t, err)
	return c
}

// holding returns the claims that hold a resource.
func (w *world) holding(resource string) (all []*models.Claim) {
	w.t.Helper()
	queue, err := w.own().GetQueue(w.t.Context(), &models.GetQueueRequest{Resource: resource})
	must(w.t, err)
	for _, holder := range queue.GetHolders() {
		all = append(all, w.get(holder.GetId()))
	}
	return all
}

// revoke ends a claim.
func (w *world) revoke(id, reason string) {
	w.t.Helper()
	must(w.t, second(w.own().UpdateClaim(w.t.Context(), &models.UpdateClaimRequest{Id: id, Status: models.Status_STATUS_REVOKED, Reason: reason})))
}

// release releases the lock of an owner.
func (w *world) release(key, owner string) {
	w.t.Helper()
	must(w.t, second(w.own().Release(w.t.Context(), &models.ReleaseRequest{Resource: resource(key, owner)})))
}

// take releases the lock of an owner, and locks it for the owner "thief".
func (w *world) take(key, owner string) {
	w.t.Helper()
	w.release(key, owner)
	must(w.t, second(w.own().Lock(w.t.Context(), &models.LockRequest{Resource: resource(key, "thief"), TtlInSeconds: 100})))
}

// resetSessions ends all sessions except some.
func (w *world) resetSessions(keep ...string) {
	w.t.Helper()
	must(w.t, second(w.own().ResetSessions(w.t.Context(), &models.ResetSessionsRequest{Keep: keep})))
}

// stands fails the test unless a session has this state for a resource, when everything has settled.
func stands(t *testing.T, s *lock.Session, resource string, want lock.State) lock.Status {
	t.Helper()
	time.Sleep(50 * time.Millisecond)
	synctest.Wait()
	got := s.Status(resource)
	if got.Current != want {
		t.Errorf("%s of %s: %s, want %s", resource, s.Owner(), got.Current, want)
	}
	return got
}

// diary collects lines of text, such as the callbacks of a runner.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, ", ")
}

func (d *diary) callbacks() lock.Option {
	return lock.WithCallbacks(lock.Callbacks{
		Acquired:     func(uint64) { d.note("acquired") },
		Unverifiable: func(error) { d.note("unverifiable") },
		Verified:     func() { d.note("verified") },
		Lost:         func(error) { d.note("lost") },
	})
}

// says fails the test unless the lines are exactly these.
func (d *diary) says(t *testing.T, want string) {
	t.Helper()
	if got := d.String(); got != want {
		t.Errorf("the callbacks: %q, want %q", got, want)
	}
}

func resource(key, owner string) *models.Resource {
	return &models.Resource{Key: key, Owner: owner, Value: "of " + owner}
}

const (
	ttl   = 15 * time.Second
	retry = 5 * time.Second
)

// isReady reports whether a process is ready, when everything has settled.
func isReady(p ifrit.Process) bool {
	synctest.Wait()
	select {
	case <-p.Ready():
		return true
	default:
		return false
	}
}

// end signals a process and returns its error.
func end(p ifrit.Process) error {
	p.Signal(os.Interrupt)
	return <-p.Wait()
}

// exited reports whether a process has ended, and returns its error.
func exited(p ifrit.Process) (bool, error) {
	ended := p.Wait()
	synctest.Wait()
	select {
	case err := <-ended:
		return true, err
	default:
		return false, nil
	}
}
