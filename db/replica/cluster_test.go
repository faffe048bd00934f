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
)

// cluster is some servers that share a log in memory.
type cluster struct {
	testing.TB
	*rand.Rand
	log *ordertest.Shared

	mu      sync.Mutex // guards the following
	servers []*server
	named   map[string]*server // by what a decider says about itself
}

// server is one server of a cluster. Its folder and its disk outlive its process.
type server struct {
	c      *cluster
	n, run int
	folder string
	disk   *disktest.Disk
	clock  *wallClock
	log    *ordertest.Server
	store  *replica.Store // nil while it is stopped
	cut    bool           // off the other servers
}

func newCluster(t testing.TB, seed uint64) *cluster {
	return &cluster{TB: t, Rand: rand.New(rand.NewPCG(seed, 0)), log: ordertest.New(), named: map[string]*server{}}
}

// add starts one more server.
func (c *cluster) add() *server {
	c.Helper()
	s := &server{c: c, n: len(c.servers), folder: filepath.Join(c.TempDir(), "data"), disk: disktest.New(), clock: new(wallClock)}
	c.mu.Lock()
	c.servers = append(c.servers, s)
	c.mu.Unlock()
	s.start()
	return s
}

func (s *server) start() {
	s.c.Helper()
	s.run++
	s.log = s.c.log.Open()
	s.log.Fail(latency, nil)
	s.c.mu.Lock()
	s.c.named[string(s.About())] = s
	s.c.mu.Unlock()
	store, err := replica.OpenWith(s.folder, replica.Options{
		SegmentBytes: 8192, SnapshotBytes: 16 << 10, Delay: 50 * time.Millisecond,
		Disk: s.disk, Wall: s.clock.now, Cluster: &replica.Cluster{Log: s.log, Peers: s},
	})
	if err != nil {
		s.c.Fatal(err)
	}
	s.c.mu.Lock()
	s.store = store
	s.c.mu.Unlock()
}

// latency lets time pass with each operation of the log: else a bubble's time would stand still while somebody reads.
func latency(string) error {
	time.Sleep(100 * time.Microsecond)
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
	if crash {
		_ = s.log.Close() // nobody hears of its end
	}
	if err := store.Close(); err != nil {
		s.c.Error(err)
	}
	_ = s.log.Close()
	if s.disk = s.disk.Kill(); crash {
		s.disk = s.disk.Crash(s.c.Rand)
	}
}

func (c *cluster) stop() {
	for _, s := range c.servers {
		s.stop(false)
	}
}

var errNetwork = errors.New("the network is down")

// reach returns another server's store.
func (s *server) reach(decider []byte) (*replica.Store, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	other := s.c.named[string(decider)]
	if other == nil || other.store == nil || other.cut || s.cut || string(other.About()) != string(decider) {
		return nil, fmt.Errorf("%w: %w", db.ErrUnavailable, errNetwork)
	}
	return other.store, nil
}

// About implements replica.Peers.
func (s *server) About() []byte { return fmt.Appendf(nil, "server %d, run %d", s.n, s.run) }

// CarryOut implements replica.Peers.
func (s *server) CarryOut(ctx context.Context, decider, batch []byte) ([]byte, error) {
	other, err := s.reach(decider)
	if err != nil {
		return nil, err
	}
	return other.CarryOut(ctx, batch)
}

// Alive implements replica.Peers.
func (s *server) Alive(_ context.Context, decider []byte, name string) error {
	other, err := s.reach(decider)
	if err != nil {
		return err
	}
	return other.Alive(name)
}

// Register implements replica.Peers.
func (s *server) Register(ctx context.Context, decider []byte, name string) error {
	other, err := s.reach(decider)
	if err != nil {
		return err
	}
	return other.RegisterName(ctx, name)
}

// TestClusterStore runs the suite of all stores, with each store on a server of its own.
func TestClusterStore(t *testing.T) {
	for _, c := range dbtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { dbtest.RunCase(t, c, clusterEngine) })
		})
	}
}

// clusterEngine is an engine whose first server does not decide.
func clusterEngine(t testing.TB) dbtest.Engine {
	c := newCluster(t, 1)
	t.Cleanup(c.stop)
	first := c.add()
	if _, err := db.Transact(t.Context(), first.store, db.Batch{}); err != nil {
		t.Fatal(err)
	}
	s := c.add()
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
