package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/locket-service/locket/db/sqlite"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/server"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

// house is a whole server on a new SQLite file, as `locket server` runs it, in a bubble.
type house struct {
	t    *testing.T
	file string

	mu       sync.Mutex
	listener *bufconn.Listener
	process  ifrit.Process
	store    *sqlite.Store
	cut      bool // clients cannot connect
	conns    []net.Conn
}

// inHouse runs a test with a fake clock and a server.
func inHouse(t *testing.T, test func(t *testing.T, h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{t: t, file: newDatabase(t)}
		h.start()
		defer func() {
			h.stop()
			time.Sleep(2 * time.Minute) // what clients left ends
		}()
		test(t, h)
	})
}

func (h *house) start() {
	h.t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := sqlite.Open(h.file)
	must(h.t, err)
	service := server.NewService(server.Config{DatabaseTimeout: 10 * time.Second, HistoryRetention: time.Hour, HistoryLimit: 1000}, store, log, prometheus.NewRegistry(), server.Guards{})
	listener := bufconn.Listen(1 << 20)
	process := ifrit.Invoke(grouper.NewOrdered(os.Interrupt, append(service.Members, grouper.Member{
		Name: "grpc", Runner: grpcserver.New(grpcserver.Config{
			Listener: listener, Chain: service.Chain, Register: service.Register, OnDrain: service.Drain, ShutdownTimeout: time.Second, Log: log,
		}),
	})))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listener, h.process, h.store = listener, process, store
}

func (h *house) stop() {
	h.t.Helper()
	h.process.Signal(os.Interrupt)
	if err := errors.Join(<-h.process.Wait(), h.store.Close()); err != nil {
		h.t.Errorf("the end of the server: %v", err)
	}
}

func (h *house) dial(ctx context.Context, _ string) (net.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cut {
		return nil, errors.New("no way")
	}
	conn, err := h.listener.DialContext(ctx)
	if err == nil {
		h.conns = append(h.conns, conn)
	}
	return conn, err
}

// cutOff cuts all clients off, or lets them connect again.
func (h *house) cutOff(cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = cut
	for _, conn := range h.conns {
		_ = conn.Close()
	}
	h.conns = nil
}

func (h *house) dialer() lock.ClientOption {
	return lock.WithDial(conn.WithDialOptions(grpc.WithContextDialer(h.dial)))
}

var houseAddress = []string{"127.0.0.1:1"}

// session returns a session, which is closed at the end of the test.
func (h *house) session(options ...lock.ClientOption) *lock.Session {
	h.t.Helper()
	s, err := lock.NewSession(houseAddress, append(options, h.dialer())...)
	must(h.t, err)
	return s
}

func (h *house) client(options ...lock.ClientOption) *lock.Client {
	h.t.Helper()
	c, err := lock.NewClient(houseAddress, append(options, h.dialer())...)
	must(h.t, err)
	return c
}

func closeAll(t *testing.T, sessions ...*lock.Session) {
	t.Helper()
	for _, s := range sessions {
		must(t, s.Close(t.Context()))
	}
}

// direct returns a client of the server beside the session.
func (h *house) direct() (client models.LocketClient, end func()) {
	h.t.Helper()
	conn, err := lock.Dial(houseAddress, conn.WithDialOptions(grpc.WithContextDialer(h.dial)))
	must(h.t, err)
	return models.NewLocketClient(conn), func() { must(h.t, conn.Close()) }
}

// partition is what stands between one client and the server.
type partition struct {
	*house
	mu      sync.Mutex
	mode    int           // 0: nothing, 1: bytes are held back, 2: cut
	changed chan struct{} // closed when the mode changes; nil if nobody waits for that
	conns   []*partitioned
}

func (p *partition) dialer() lock.ClientOption { return lock.WithDial(p.dialOption()) }

func (p *partition) dialOption() conn.Option {
	return conn.WithDialOptions(grpc.WithContextDialer(p.dial))
}

func (p *partition) dial(ctx context.Context, address string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == 2 {
		return nil, errors.New("cut")
	}
	conn, err := p.house.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	c := &partitioned{Conn: conn, p: p, closed: make(chan struct{})}
	p.conns = append(p.conns, c)
	return c, nil
}

// set changes what happens to the bytes of the client.
func (p *partition) set(mode int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	if mode == 2 {
		for _, c := range p.conns {
			_ = c.Conn.Close()
		}
		p.conns = nil
	}
}

// holdsBack returns what is closed when bytes may be held back no longer, nil if they are not.
func (p *partition) holdsBack() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode != 1 {
		return nil
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// partitioned is a connection through a partition.
type partitioned struct {
	net.Conn
	p      *partition
	once   sync.Once
	closed chan struct{}
}

func (c *partitioned) pass() {
	for {
		changed := c.p.holdsBack()
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-c.closed:
			return
		}
	}
}

func (c *partitioned) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.pass()
	return n, err
}

func (c *partitioned) Write(b []byte) (int, error) {
	c.pass()
	return c.Conn.Write(b)
}

func (c *partitioned) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
