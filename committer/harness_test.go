package committer_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"go.uber.org/goleak"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/committer"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const timeout = 10 * time.Second

// store is a real one whose methods can be put out of order while it is in use. A method
// that is nil is in order.
type store struct {
	db.Store
	mu       sync.Mutex
	transact func(ctx context.Context, fn func(db.Tx) error) error
	resume   func() error
	due      func() ([]string, error)
	changes  func() ([]string, error)
}

// set puts methods out of order, and in order again.
func (s *store) set(change func(s *store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *store) Transact(ctx context.Context, fn func(db.Tx) error) error {
	s.mu.Lock()
	transact := s.transact
	s.mu.Unlock()
	if transact == nil {
		transact = s.Store.Transact
	}
	return transact(ctx, fn)
}

func (s *store) Resume(ctx context.Context) error {
	s.mu.Lock()
	resume := s.resume
	s.mu.Unlock()
	if resume == nil {
		return s.Store.Resume(ctx)
	}
	return resume()
}

func (s *store) Due(ctx context.Context, idle time.Duration, limit int) ([]string, error) {
	s.mu.Lock()
	due := s.due
	s.mu.Unlock()
	if due == nil {
		return s.Store.Due(ctx, idle, limit)
	}
	return due()
}

func (s *store) Changes(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	changes := s.changes
	s.mu.Unlock()
	if changes == nil {
		return s.Store.Changes(ctx)
	}
	return changes()
}

// world is a committer that runs on a store.
type world struct {
	*committer.Committer
	store    *store
	registry *prometheus.Registry
	metrics  *committer.Metrics
	log      *slog.Logger
	process  ifrit.Process
}

func open(t testing.TB) *store {
	t.Helper()
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "locket.db"))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return &store{Store: s}
}

func start(t testing.TB, maxBatch int) *world {
	t.Helper()
	w := newWorld(t, maxBatch)
	w.process = run(t, w.Committer)
	return w
}

// newWorld returns a world whose committer does not run.
func newWorld(t testing.TB, maxBatch int) *world {
	t.Helper()
	w := &world{store: open(t), registry: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler)}
	w.metrics = committer.NewMetrics(w.registry)
	w.Committer = committer.New(w.store, committer.Config{MaxBatch: maxBatch, Timeout: timeout, Log: w.log, Metrics: w.metrics})
	return w
}

// bubble runs a test with a committer and a fake clock.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, start(t, 0)) })
}

// run starts a runner, and stops it when the test ends.
func run(t testing.TB, runner ifrit.Runner) ifrit.Process {
	t.Helper()
	process := ifrit.Invoke(runner)
	t.Cleanup(func() { stop(t, process) })
	return process
}

func stop(t testing.TB, process ifrit.Process) {
	t.Helper()
	process.Signal(os.Interrupt)
	must(t, <-process.Wait())
}

// hold keeps transactions from going on until the function that it returns is called.
func (s *store) hold() (goOn func()) {
	gate := make(chan struct{})
	s.set(func(s *store) {
		s.transact = func(ctx context.Context, fn func(db.Tx) error) error {
			<-gate
			return s.Store.Transact(ctx, fn)
		}
	})
	return sync.OnceFunc(func() { close(gate) })
}

// do carries out a command that must succeed.
func (w *world) do(t testing.TB, cmd claim.Command) claim.Claim {
	t.Helper()
	result, err := w.Do(t.Context(), cmd)
	must(t, err)
	return result.Claim
}

// reply is what a call returned.
type reply struct {
	committer.Result
	err error
}

// send carries out commands at once, in any order, and returns when all of them are under
// way or answered. It is for bubbles.
func (w *world) send(ctx context.Context, cmds ...claim.Command) []chan reply {
	replies := make([]chan reply, len(cmds))
	for i, cmd := range cmds {
		replies[i] = make(chan reply, 1)
		go func() {
			result, err := w.Do(ctx, cmd)
			replies[i] <- reply{result, err}
		}()
	}
	synctest.Wait()
	return replies
}

// await is send for Await.
func (w *world) await(ctx context.Context, id string) chan reply {
	replies := make(chan reply, 1)
	go func() {
		result, err := w.Await(ctx, id)
		replies <- reply{result, err}
	}()
	synctest.Wait()
	return replies
}

// has reports whether the store has a claim.
func (w *world) has(t testing.TB, id string) bool {
	t.Helper()
	_, _, err := w.store.Get(t.Context(), id)
	if err != nil && !errors.Is(err, claim.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// metric returns the value of a counter or a gauge, with a label of that value if one is
// given.
func (w *world) metric(t testing.TB, name string, label ...string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	must(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (len(label) == 0 || m.GetLabel()[0].GetValue() == label[0]) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s %q", name, label)
	return 0
}

// batches returns the numbers of transactions and of requests so far.
func (w *world) batches(t testing.TB) (transactions, requests int) {
	t.Helper()
	families, err := w.registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == "locket_batch_requests" {
			h := family.GetMetric()[0].GetHistogram()
			return int(h.GetSampleCount()), int(h.GetSampleSum())
		}
	}
	t.Fatal("no metric of batches")
	return 0, 0
}

// receive is for bubbles: a minute is long enough there for anything.
func receive[T any](t testing.TB, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(time.Minute):
		t.Fatal("there was no answer")
	}
	return got
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lock is a lock named by its id.
func lock(id string) claim.Command {
	return claim.Acquire{ID: id, Resource: "of " + id, Owner: "o", TTL: time.Hour}
}
