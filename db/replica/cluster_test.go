package replica_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/order/ordertest"
	"github.com/locket-service/locket/internal/rules/claim"
)

// cluster is some servers that share a log in memory.
type cluster struct {
	testing.TB
	*rand.Rand
	log *ordertest.Shared

	mu      sync.Mutex // guards the following
	servers []*server
	named   map[string]*server // by their About
}

// server is one server of a cluster. Its folder and its disk outlive its process.
type server struct {
	c      *cluster
	n, run int
	folder string
	disk   *disktest.Disk // of its log; nil: its folder
	clock  *wallClock
	log    *ordertest.Server
	store  *replica.Store // nil while it is stopped
	cut    bool           // off the other servers
	format uint64         // that it knows; 0: the usual one
	turn   chan struct{}  // full while somebody calls Transact or Beat
}

func newCluster(t testing.TB, seed uint64) *cluster {
	return &cluster{TB: t, Rand: rand.New(rand.NewPCG(seed, 0)), log: ordertest.New(), named: map[string]*server{}}
}

// add starts one more server.
func (c *cluster) add() *server {
	c.Helper()
	s := c.server()
	s.start()
	return s
}

// server returns one more server, which is not started.
func (c *cluster) server() *server {
	s := &server{c: c, n: len(c.servers), folder: filepath.Join(c.TempDir(), "data"), disk: disktest.New(), clock: new(wallClock), turn: make(chan struct{}, 1)}
	c.mu.Lock()
	c.servers = append(c.servers, s)
	c.mu.Unlock()
	return s
}

func (s *server) start() {
	s.c.Helper()
	if err := s.open(); err != nil {
		s.c.Fatal(err)
	}
}

func (s *server) open() error {
	s.log = s.c.log.Open()
	s.log.Fail(latency, nil)
	s.c.mu.Lock()
	s.run++
	s.c.named[string(peers{s, s.run}.About())] = s
	s.c.mu.Unlock()
	options := replica.Options{
		SegmentBytes: 8192, SnapshotBytes: 16 << 10, Delay: 50 * time.Millisecond,
		SumEntries: sumEntries, Format: s.format, FormatDelay: time.Minute, Wall: s.clock.now, Cluster: &replica.Cluster{Log: s.log, Peers: peers{s, s.run}},
	}
	if s.disk != nil {
		options.Disk = s.disk
	}
	store, err := replica.OpenWith(s.folder, options)
	if err != nil {
		return err
	}
	s.c.mu.Lock()
	s.store = store
	s.c.mu.Unlock()
	return nil
}

// sumEntries is after how many entries servers compare their states.
const sumEntries = 4

// latency lets time pass with each operation of the log. Without it a bubble's time stands still while somebody reads.
func latency(string) error {
	time.Sleep(100 * time.Microsecond) // real time: none, clusters run in bubbles
	return nil
}

// stop closes the store. Its disk then loses what was not synced, if crash is set.
func (s *server) stop(crash bool) {
	s.c.Helper()
	s.c.mu.Lock()
	store := s.store
	s.store = nil
	s.c.mu.Unlock()
	if store == nil {
		return
	}
	var left *disktest.Disk
	if crash {
		_ = s.log.Close() // nobody hears of its end
		if s.disk != nil {
			s.disk.SetFault(func(string) error { return errors.New("there is no power") })
			left = s.disk.Crash(s.c.Rand)
		}
	}
	if err := store.Close(); err != nil && !crash {
		s.c.Error(err)
	}
	_ = s.log.Close()
	switch {
	case left != nil:
		s.disk = left
	case s.disk != nil:
		s.disk = s.disk.Kill()
	}
}

func (c *cluster) stop() {
	for _, s := range c.servers {
		s.stop(false)
	}
}

var errNetwork = errors.New("the network is down")

// peers are the connections of one run of a server.
type peers struct {
	*server
	of int
}

// About implements replica.Peers.
func (p peers) About() []byte { return fmt.Appendf(nil, "server %d, run %d", p.n, p.of) }

// Serve and Close implement replica.Peers.
func (peers) Serve(replica.Handler) {}

func (peers) Close() {}

// Snapshot implements replica.Peers.
func (p peers) Snapshot(ctx context.Context, about, request []byte, part func([]byte) error) error {
	other, err := p.reach(about)
	if err != nil {
		return err
	}
	return other.SendSnapshot(ctx, request, part)
}

// History implements replica.Peers.
func (p peers) History(ctx context.Context, about, request []byte, part func([]byte) error) error {
	other, err := p.reach(about)
	if err != nil {
		return err
	}
	return other.SendHistory(ctx, request, part)
}

// CarryOut implements replica.Peers.
func (p peers) CarryOut(ctx context.Context, decider, message []byte) ([]byte, error) {
	other, err := p.reach(decider)
	if err != nil {
		return nil, err
	}
	return other.CarryOut(ctx, message)
}

// reach returns another server's store.
func (p peers) reach(decider []byte) (*replica.Store, error) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	other := p.c.named[string(decider)]
	if other == nil || other.store == nil || other.cut || p.cut || p.run != p.of || !other.is(decider) {
		return nil, fmt.Errorf("%w: %w", db.ErrUnavailable, errNetwork)
	}
	return other.store, nil
}

// is reports whether a decider is the current run of a server.
func (s *server) is(decider []byte) bool { return string(peers{s, s.run}.About()) == string(decider) }

// TestClusterStore runs the suite of all stores. Each store is a server of its own, and the first one does not decide. The
// clock is the decider's, so the cases about it use the decider.
func TestClusterStore(t *testing.T) {
	for n, c := range dbtest.Cases() {
		if !c.Servers && !c.Clock && (n+1)%everyCase != 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dbtest.RunCase(t, c, func(t testing.TB) dbtest.Engine { return clusterEngine(t, c.Clock) })
			})
		})
	}
}

// clusterEngine is an engine whose first server decides, or does not.
func clusterEngine(t testing.TB, decides bool) dbtest.Engine {
	c := newCluster(t, 1)
	t.Cleanup(c.stop)
	first := c.add()
	if _, err := db.Transact(t.Context(), first.store, db.Batch{}); err != nil {
		t.Fatal(err)
	}
	s := first
	if !decides {
		s = c.add()
	}
	return dbtest.Engine{Store: remote{s.store, c}, Reopen: func(t testing.TB) db.Store {
		t.Helper()
		s.stop(true)
		s.start()
		return remote{s.store, c}
	}, Second: func(testing.TB) db.Store { return remote{c.add().store, c} }, Step: func(by time.Duration) {
		for _, s := range c.servers {
			s.clock.set(by)
		}
	}}
}

// remote is a store whose transactions of the suite's own functions, which cannot be sent, run at the decider.
type remote struct {
	*replica.Store
	c *cluster
}

// Update implements db.Updater.
func (r remote) Update(ctx context.Context, fn func(db.Tx) error) error {
	for _, s := range r.c.servers {
		if err := s.store.Update(ctx, fn); !errors.Is(err, replica.ErrNotDecider) {
			return err
		}
	}
	return replica.ErrNotDecider
}

// TestNoQuorum: a server that is cut off from the log refuses batches, at once when it is known.
func TestNoQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.stop()
		c.add()
		s := c.add()
		n := 0
		transact := func() error {
			n++
			cmd := claim.Acquire{ID: fmt.Sprint(n), Resource: fmt.Sprint(n), Owner: "o", TTL: time.Hour}
			_, err := db.Transact(t.Context(), s.store, db.Batch{Requests: []claim.Request{{Command: cmd}}})
			return err
		}
		if err := transact(); err != nil {
			t.Fatal(err)
		}
		for _, server := range c.servers {
			server.log.Pause()
		}
		if err := transact(); !errors.Is(err, db.ErrOutcomeUnknown) && !errors.Is(err, db.ErrNoQuorum) {
			t.Errorf("the first batch: %v", err)
		}
		begin := time.Now()
		for range 10 {
			if err := transact(); !errors.Is(err, db.ErrNoQuorum) {
				t.Errorf("a later batch: %v", err)
			}
		}
		if _, err := s.store.Holder(t.Context(), "r"); !errors.Is(err, db.ErrNoQuorum) {
			t.Errorf("a read: %v", err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("ten batches and a read are refused after %v", took)
		}
		for _, server := range c.servers {
			server.log.Resume()
		}
		time.Sleep(2 * time.Second)
		if err := transact(); err != nil {
			t.Errorf("after the outage: %v", err)
		}
	})
}
