// Package committertest has helpers for the tests of the committer, and of the parts that work beside it: a committer
// on a real store into which faults can be injected.
package committertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/quota"
	"github.com/locket-service/locket/internal/service/watch"
)

// Timeout is the committer's timeout.
const Timeout = 10 * time.Second

// Store is a real store. Each function that is set replaces, or is called before, a method of it, to inject a fault.
type Store struct {
	db.Store
	mu         sync.Mutex
	OnTransact func(ctx context.Context, fn func(db.Tx) error) error // replaces Update for Transact
	OnBeat     func() error                                          // called after each Beat that does not resume; Beat returns its error
	OnResume   func() error                                          // replaces a Beat that resumes
	OnDue      func() (resources []string, err error)                // replaces Due for resources
	OnGet      func()                                                // called after each Get, before it returns
	OnUsage    func()                                                // called before each Usage
	OnChanges  func(after db.Position) ([]db.Commit, error)
}

// Set changes the injected faults, even while the store is in use.
func (s *Store) Set(change func(s *Store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// Transact returns when the batch is committed.
func (s *Store) Transact(ctx context.Context, batch db.Batch) (outcome db.Outcome, _ db.Completion, err error) {
	s.mu.Lock()
	update := updater(s.OnTransact)
	s.mu.Unlock()
	if update == nil {
		outcome, err = db.Transact(ctx, s.Store, batch)
	} else {
		outcome, err = db.CarryOut(ctx, update, batch)
	}
	return outcome, nil, err
}

// Update runs a function in a transaction of the engine, without injected faults.
func (s *Store) Update(ctx context.Context, fn func(db.Tx) error) error {
	return s.Store.(db.Updater).Update(ctx, fn)
}

// updater makes a function a db.Updater.
type updater func(context.Context, func(db.Tx) error) error

func (u updater) Update(ctx context.Context, fn func(db.Tx) error) error { return u(ctx, fn) }

func (s *Store) Beat(ctx context.Context, resumes bool) error {
	s.mu.Lock()
	beat, resume := s.OnBeat, s.OnResume
	s.mu.Unlock()
	if resumes && resume != nil {
		return resume()
	}
	err := s.Store.Beat(ctx, resumes)
	if !resumes && beat != nil {
		err = errors.Join(err, beat())
	}
	return err
}

func (s *Store) Due(ctx context.Context, query db.DueQuery) (db.Overdue, error) {
	s.mu.Lock()
	due := s.OnDue
	s.mu.Unlock()
	if due == nil || query.Resources == 0 {
		return s.Store.Due(ctx, query)
	}
	names, err := due()
	return db.Overdue{Resources: names}, err
}

func (s *Store) Get(ctx context.Context, id string, limit int) (claim.Claim, int, claim.Instant, error) {
	c, position, now, err := s.Store.Get(ctx, id, limit)
	s.mu.Lock()
	then := s.OnGet
	s.mu.Unlock()
	if then != nil {
		then()
	}
	return c, position, now, err
}

func (s *Store) Usage(ctx context.Context, identity string, except []string) (claim.Count, error) {
	s.mu.Lock()
	usage := s.OnUsage
	s.mu.Unlock()
	if usage != nil {
		usage()
	}
	return s.Store.Usage(ctx, identity, except)
}

func (s *Store) Changes(ctx context.Context, after db.Position, own bool) ([]db.Commit, error) {
	s.mu.Lock()
	changes := s.OnChanges
	s.mu.Unlock()
	if changes == nil {
		return s.Store.Changes(ctx, after, own)
	}
	return changes(after)
}

// World is a committer that runs on a store, and the calls that wait there.
type World struct {
	*committer.Committer
	Guard    *quota.Guard
	Hub      *watch.Hub
	Store    *Store
	Registry *prometheus.Registry
	Log      *slog.Logger
	Process  ifrit.Process
}

func open(t testing.TB) *Store {
	t.Helper()
	s, err := replica.Open(filepath.Join(t.TempDir(), "data"))
	Check(t, err)
	t.Cleanup(func() { Check(t, s.Close()) })
	return &Store{Store: s}
}

// Start returns a world whose committer runs until the test ends.
func Start(t testing.TB, maxBatch int) *World {
	t.Helper()
	w := New(t, maxBatch)
	w.Process = Run(t, w.Committer)
	return w
}

// New returns a world whose committer does not run.
func New(t testing.TB, maxBatch int) *World {
	t.Helper()
	return NewBounded(t, maxBatch, 0)
}

// NewBounded is New with a bound for the requests that wait.
func NewBounded(t testing.TB, maxBatch, maxPending int) *World {
	t.Helper()
	w := &World{Store: open(t), Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}
	w.Hub = watch.NewHub(w.Store, w.Registry)
	w.Guard = quota.New(w.Store, w.Hub.Refusals.Count)
	w.Committer = committer.New(w.Store, committer.Config{
		MaxBatch: maxBatch, MaxPending: maxPending, Timeout: Timeout, Log: w.Log, Metrics: committer.NewMetrics(w.Registry),
		Listeners: []committer.Listener{w.Hub}, Guard: w.Guard,
	})
	return w
}

// Bubble runs a test with a committer and a fake clock.
func Bubble(t *testing.T, test func(t *testing.T, w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, Start(t, 0)) })
}

// Run starts a runner, and stops it when the test ends.
func Run(t testing.TB, runner ifrit.Runner) ifrit.Process {
	t.Helper()
	process := ifrit.Invoke(runner)
	t.Cleanup(func() { Stop(t, process) })
	return process
}

// Stop stops a runner and waits for its end.
func Stop(t testing.TB, process ifrit.Process) {
	t.Helper()
	process.Signal(os.Interrupt)
	Check(t, <-process.Wait())
}

// Hold blocks transactions until the returned function is called.
func (s *Store) Hold() (goOn func()) {
	gate := make(chan struct{})
	s.Set(func(s *Store) {
		s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
			<-gate
			return s.Update(ctx, fn)
		}
	})
	return sync.OnceFunc(func() { close(gate) })
}

// Must carries out a command that must succeed.
func (w *World) Must(t testing.TB, cmd claim.Command) claim.Claim {
	t.Helper()
	result, err := w.Do(t.Context(), cmd)
	Check(t, err)
	return result.Claim
}

// Session makes a session "s", attached to the server "here", with a number of resources. The name of each resource,
// a number, is also its claim's id.
func (w *World) Session(t testing.TB, holds int) {
	t.Helper()
	w.Must(t, claim.Attach{Session: claim.Session{ID: "s", TTL: time.Hour}, Server: "here"})
	cmds := make([]claim.Command, holds)
	for i := range cmds {
		cmds[i] = claim.Create{ID: fmt.Sprint(i), Resource: fmt.Sprint(i), Session: "s", Server: "here"}
	}
	for _, r := range w.Send(t.Context(), cmds...) {
		Check(t, (<-r).Err)
	}
}

// Reply is the result of a call.
type Reply struct {
	committer.Result
	Err error
}

// Send carries out commands at once, in any order, and returns when all of them are under
// way or answered. It is for bubbles.
func (w *World) Send(ctx context.Context, cmds ...claim.Command) []chan Reply {
	replies := make([]chan Reply, len(cmds))
	for i, cmd := range cmds {
		replies[i] = make(chan Reply, 1)
		go func() {
			result, err := w.Do(ctx, cmd)
			replies[i] <- Reply{result, err}
		}()
	}
	synctest.Wait()
	return replies
}

// Await is Send for the hub's Await.
func (w *World) Await(ctx context.Context, id string) chan Reply {
	replies := make(chan Reply, 1)
	go func() {
		c, now, err := w.Hub.Await(ctx, id)
		replies <- Reply{committer.Result{Claim: c, Now: now}, err}
	}()
	synctest.Wait()
	return replies
}

// Has reports whether the store has a claim.
func (w *World) Has(t testing.TB, id string) bool {
	t.Helper()
	_, _, _, err := w.Store.Get(t.Context(), id, 0)
	if err != nil && !errors.Is(err, claim.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// Metric returns the value of a counter or a gauge. If a label's value is given, it returns the series with that
// label.
func (w *World) Metric(t testing.TB, name string, label ...string) float64 {
	t.Helper()
	m := w.metric(t, name, label...)
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}

// Samples returns how many values a histogram has got, and their sum.
func (w *World) Samples(t testing.TB, name string, label ...string) (n int, sum float64) {
	t.Helper()
	h := w.metric(t, name, label...).GetHistogram()
	return int(h.GetSampleCount()), h.GetSampleSum()
}

func (w *World) metric(t testing.TB, name string, label ...string) *dto.Metric {
	t.Helper()
	families, err := w.Registry.Gather()
	Check(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (len(label) == 0 || m.GetLabel()[0].GetValue() == label[0]) {
				return m
			}
		}
	}
	t.Fatalf("no metric %s %q", name, label)
	return nil
}

// Batches returns the numbers of transactions and of requests so far.
func (w *World) Batches(t testing.TB) (transactions, requests int) {
	t.Helper()
	n, sum := w.Samples(t, "locket_batch_requests")
	return n, int(sum)
}

// Receive is for bubbles: a minute is long enough there for anything.
func Receive[T any](t testing.TB, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(time.Minute): // real time: none, it is for bubbles
		t.Fatal("there was no answer")
	}
	return got
}

// Check fails the test with an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Lock is a lock named by its id.
func Lock(id string) claim.Command {
	return claim.Acquire{ID: id, Resource: "of " + id, Owner: "o", TTL: time.Hour}
}

// Transact carries out a command that must succeed in a transaction of its own, as another server does.
func Transact(t testing.TB, s db.Transactor, cmd claim.Command) {
	t.Helper()
	outcome, err := db.Transact(t.Context(), s, db.Batch{Requests: []claim.Request{{Command: cmd}}})
	Check(t, err)
	Check(t, outcome.Answers[0].Err)
}

// Execute carries out a command that must succeed in a transaction.
func Execute(tx db.Tx, cmd claim.Command) (err error) {
	_, failed := db.Execute(tx, []claim.Command{cmd}, func(queues *claim.Queues) { _, err = queues.Do(cmd) })
	return errors.Join(failed, err)
}
