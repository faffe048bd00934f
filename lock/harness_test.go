package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/locket-service/locket/db/raft"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/server"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

// world is a whole server on a new database, as `locket server` runs it, in a bubble, and what stands between it and
// its clients.
type world struct {
	t      *testing.T
	folder string

	mu       sync.Mutex
	listener *bufconn.Listener
	process  ifrit.Process // nil while it is stopped
	store    *raft.Store
	cut      bool // clients cannot connect
	wires    []net.Conn

	conn   *grpc.ClientConn // of rpc; nil until it is needed
	direct *conn.Conn       // of own; likewise
	// fail, if it is set, is asked before each request of rpc is sent.
	fail func(ctx context.Context, method string) error
	// calls counts the requests of rpc, by method.
	calls map[string]int
	// deaf loses the answers to clients of type deaf.
	deaf bool
}

// inWorld runs a test with a fake clock and a server.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, folder: filepath.Join(newFolder(t), "data"), calls: make(map[string]int)}
		w.start()
		defer func() {
			if w.conn != nil {
				must(t, w.conn.Close())
			}
			if w.direct != nil {
				must(t, w.direct.Close())
			}
			w.stop()
			time.Sleep(2 * time.Minute) // what clients left ends
		}()
		test(t, w)
	})
}

// newFolder returns a new folder, in memory where the machine has one there: time in a bubble stands still while a busy
// disk is written to, and leases of processes run out.
func newFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "locket-lock-") //nolint:usetesting // not where temporary files are
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(folder)) })
	return folder
}

// connect returns a connection to the server that is up when it is needed.
func (w *world) connect(options ...grpc.DialOption) *grpc.ClientConn {
	w.t.Helper()
	conn, err := grpc.NewClient("passthrough:///locket", append(options,
		grpc.WithContextDialer(w.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}))...)
	must(w.t, err)
	return conn
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start starts the server, again if it was stopped.
func (w *world) start() {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := raft.Open(w.folder)
	must(w.t, err)
	service := server.NewService(server.Config{DatabaseTimeout: 10 * time.Second, HistoryRetention: time.Hour, HistoryLimit: 1000}, store, log, prometheus.NewRegistry(), server.Guards{})
	listener := bufconn.Listen(1 << 20)
	process := ifrit.Invoke(grouper.NewOrdered(os.Interrupt, append(service.Members, grouper.Member{
		Name: "grpc", Runner: grpcserver.New(grpcserver.Config{
			Listener: listener, Chain: service.Chain, Register: service.Register, OnDrain: service.Drain, ShutdownTimeout: time.Second, Log: log,
		}),
	})))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listener, w.process, w.store = listener, process, store
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

func (w *world) dial(ctx context.Context, _ string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return nil, errors.New("no way")
	}
	conn, err := w.listener.DialContext(ctx)
	if err == nil {
		w.wires = append(w.wires, conn)
	}
	return conn, err
}

// cutOff cuts all clients off, or lets them connect again.
func (w *world) cutOff(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for _, conn := range w.wires {
		_ = conn.Close()
	}
	w.wires = nil
}

func (w *world) dialer() lock.ClientOption {
	return lock.WithDial(conn.WithDialOptions(grpc.WithContextDialer(w.dial)))
}

var anyAddress = []string{"127.0.0.1:1"}

// session returns a session, which is closed at the end of the test.
func (w *world) session(options ...lock.ClientOption) *lock.Session {
	w.t.Helper()
	s, err := lock.NewSession(anyAddress, append(options, w.dialer())...)
	must(w.t, err)
	return s
}

func (w *world) client(options ...lock.ClientOption) *lock.Client {
	w.t.Helper()
	c, err := lock.NewClient(anyAddress, append(options, w.dialer())...)
	must(w.t, err)
	return c
}

func closeAll(t *testing.T, sessions ...*lock.Session) {
	t.Helper()
	for _, s := range sessions {
		must(t, s.Close(t.Context()))
	}
}

func (w *world) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	w.mu.Lock()
	w.calls[filepath.Base(method)]++
	fail := w.fail
	w.mu.Unlock()
	if fail != nil {
		if err := fail(ctx, filepath.Base(method)); err != nil {
			return err
		}
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// count returns how many requests of a method were sent.
func (w *world) count(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[method]
}

// failing has every request from now on answered by a function; nil lets them through.
func (w *world) failing(fail func(ctx context.Context, method string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = fail
}

// hang swallows requests: nothing comes back before their deadline.
func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// rpc returns a client for calls, which failing and count see.
func (w *world) rpc() models.LocketClient {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		w.conn = w.connect(grpc.WithUnaryInterceptor(w.intercept))
	}
	return models.NewLocketClient(w.conn)
}

// own returns the test's own client, whose calls failing does not see.
func (w *world) own() models.LocketClient {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.direct == nil {
		var err error
		w.direct, err = lock.Dial(anyAddress, conn.WithDialOptions(grpc.WithContextDialer(w.dial)))
		must(w.t, err)
	}
	return models.NewLocketClient(w.direct)
}

// holder returns who holds a key, "" for nobody, and the token.
func (w *world) holder(key string) (owner string, token uint64) {
	w.t.Helper()
	got, err := w.own().Fetch(w.t.Context(), &models.FetchRequest{Key: key})
	if err != nil {
		return "", 0
	}
	return got.GetResource().GetOwner(), got.GetToken()
}

// diary holds what a runner's callbacks got.
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

// says fails the test unless the diary is exactly this.
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

// exited returns the error of a process that has ended, and whether it has.
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
