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

// asking is a claim that a client has asked for.
type asking struct {
	id     string
	begun  time.Time
	err    error // nil: it was granted
	status claim.Status
}

// clients ask the servers of a cluster for claims, while its servers are disturbed.
type clients struct {
	*cluster
	enough  chan struct{}
	working sync.WaitGroup

	asked    sync.Mutex // guards the following
	requests []*asking
	outcomes map[string]int
}

const leaseOf = 3 * time.Second

// call has a client of a server take and release a few resources.
func (c *clients) call(s *server, rnd *rand.Rand, name string) {
	for n := 0; ; n++ {
		select {
		case <-c.enough:
			return
		case <-time.After(time.Duration(1+rnd.IntN(60)) * time.Millisecond): // real time: none, clusters run in bubbles
		}
		store := s.running()
		if store == nil {
			continue
		}
		owner := fmt.Sprint(name, " ", rnd.IntN(2))
		r := &asking{id: fmt.Sprint(name, "/", n), begun: time.Now()}
		cmds := []claim.Command{claim.Acquire{ID: r.id, Resource: fmt.Sprint(rnd.IntN(4)), Owner: owner, TTL: leaseOf}}
		if rnd.IntN(2) == 0 {
			cmds = append(cmds, claim.Release{Resource: fmt.Sprint(rnd.IntN(4)), Owner: owner})
		}
		var batch db.Batch
		for _, cmd := range cmds {
			batch.Requests = append(batch.Requests, claim.Request{Command: cmd})
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s.turn <- struct{}{}
		outcome, err := db.Transact(ctx, store, batch)
		<-s.turn
		cancel()
		if r.err = err; err == nil {
			if r.err = outcome.Answers[0].Err; outcome.Answers[0].Claim != nil {
				r.id = outcome.Answers[0].Claim.ID // of the same owner's lock, which it has renewed
				r.status = outcome.Answers[0].Claim.Status
			}
		}
		c.note(r, err)
	}
}

func (c *clients) note(r *asking, err error) {
	c.asked.Lock()
	defer c.asked.Unlock()
	c.requests = append(c.requests, r)
	switch {
	case err == nil:
		c.outcomes["answered"]++
	case errors.Is(err, db.ErrUnavailable):
		c.outcomes["unavailable"]++
	case errors.Is(err, db.ErrOutcomeUnknown):
		c.outcomes["unknown"]++
	default:
		c.Errorf("claim %s: %v", r.id, err)
	}
}

func (s *server) running() *replica.Store {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.store
}

// keep does what a server does beside its callers' batches: it beats, and ends what is due.
func (c *clients) keep(s *server) {
	for {
		select {
		case <-c.enough:
			return
		case <-time.After(db.BeatInterval): // real time: none, clusters run in bubbles
		}
		store := s.running()
		if store == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s.turn <- struct{}{}
		_ = store.Beat(ctx, false)
		if due, err := store.Due(ctx, db.DueQuery{Resources: 10}); err == nil && len(due.Resources) > 0 {
			_, _ = db.Transact(ctx, store, db.Batch{Requests: []claim.Request{{Command: claim.Expire{Resources: due.Resources}}}})
		}
		<-s.turn
		cancel()
	}
}

// disturb does something to a server.
func (c *clients) disturb() (done string) {
	s := c.servers[c.IntN(len(c.servers))]
	for _, other := range c.servers { // the decider more often than not
		if other.is(c.log.Epoch().Decider) && c.IntN(3) > 0 {
			s = other
		}
	}
	if s.running() == nil {
		s.start()
		return "started"
	}
	switch c.IntN(8) {
	case 0:
		s.stop(false)
		return "stopped"
	case 1:
		s.stop(true)
		return "killed"
	case 2:
		s.log.Pause()
		return "log paused"
	case 3:
		c.mu.Lock()
		s.cut = true
		c.mu.Unlock()
		return "cut off the others"
	case 4:
		s.log.Cut()
		return "log lost"
	case 5:
		s.log.Fail(latency, func(op string) error {
			if op == "append" {
				return errNetwork
			}
			return nil
		})
		return "outcomes lost"
	case 6:
		s.log.Fail(func(op string) error {
			if op == "append" {
				return ordertest.Late(2500 * time.Millisecond)
			}
			return latency(op)
		}, nil)
		return "late appends"
	default:
		s.heal()
		return "healed"
	}
}

func (s *server) heal() {
	s.log.Resume()
	s.log.Fail(latency, nil)
	s.c.mu.Lock()
	s.cut = false
	s.c.mu.Unlock()
}

// TestCluster disturbs the servers of a cluster while clients take locks through all of them. In the end all servers have the
// same state. It has every acknowledged claim and no refused one, and no lease has ended early.
func TestCluster(t *testing.T) {
	happened := map[string]int{}
	for seed := range uint64(clusters) {
		synctest.Test(t, func(t *testing.T) {
			c := &clients{cluster: newCluster(t, seed), enough: make(chan struct{}), outcomes: happened}
			for n := range 3 {
				s := c.add()
				c.working.Go(func() { c.keep(s) })
				for client := range 2 {
					rnd := rand.New(rand.NewPCG(seed, uint64(10*n+client)))
					c.working.Go(func() { c.call(s, rnd, fmt.Sprint(n, client)) })
				}
			}
			for range 15 {
				time.Sleep(time.Duration(c.IntN(3000)) * time.Millisecond) // real time: none, clusters run in bubbles
				did := c.disturb()
				c.asked.Lock()
				happened[did]++
				c.asked.Unlock()
			}
			for _, s := range c.servers {
				if s.heal(); s.running() == nil {
					s.start()
				}
			}
			time.Sleep(5 * time.Second)
			close(c.enough)
			c.working.Wait()
			c.check()
			c.stop()
			if t.Failed() {
				t.Fatalf("with the seed %d", seed)
			}
		})
	}
	t.Logf("what happened: %v", happened)
	needed := []string{"answered"}
	if clusters > 100 { // in a few, not everything need happen
		needed = append(needed, "unavailable", "unknown", "killed", "stopped", "log paused", "late appends", "outcomes lost")
	}
	for _, what := range needed {
		if happened[what] == 0 {
			t.Errorf("this has not happened: %s", what)
		}
	}
}

func (c *clients) check() {
	first := c.servers[0].store
	if _, err := first.Holder(c.Context(), "none"); !errors.Is(err, claim.ErrNotFound) { // it has caught up
		c.Fatal(err)
	}
	for _, s := range c.servers[1:] {
		if _, err := s.store.Holder(c.Context(), "none"); !errors.Is(err, claim.ErrNotFound) {
			c.Fatal(err)
		}
		if string(s.store.Dump()) != string(first.Dump()) {
			c.Errorf("servers 0 and %d have different states", s.n)
		}
	}
	for _, r := range c.requests {
		for _, s := range c.servers {
			got, _, _, err := s.store.Get(c.Context(), r.id, 0)
			switch {
			case r.err == nil && err != nil:
				c.Errorf("claim %s was acknowledged, and server %d does not have it: %v", r.id, s.n, err)
			case r.err == nil && got.Status == claim.Expired && got.TTL == leaseOf && got.Finished.Std().Before(r.begun.Add(leaseOf).Add(-time.Millisecond)):
				c.Errorf("claim %s was asked for at %s, and expired at %s", r.id, r.begun, got.Finished.Std())
			case errors.Is(r.err, db.ErrUnavailable) && err == nil && !got.Created.Std().Before(r.begun.Add(-time.Millisecond)):
				c.Errorf("claim %s was refused as unavailable, and server %d has it: %+v", r.id, s.n, got)
			}
		}
	}
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
