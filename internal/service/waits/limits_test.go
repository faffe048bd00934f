package waits_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/waits"
)

// TestDeadlockBesideALargeSearch: a deadlock is ended within two seconds, also if a claim that waits for many others is examined
// at the same time.
func TestDeadlockBesideALargeSearch(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		time.Sleep(contract) // the first survey
		s.must(t, create("b", "of b"), create("y", "of y"))
		for i := range 40 {
			s.must(t, create(fmt.Sprint("h", i), fmt.Sprint("h", i)), create("b", fmt.Sprint("h", i)))
		}
		s.must(t, create("b", "of y"), create("q", "of q"))
		for i := range 28 {
			name := fmt.Sprint("wide", i)
			for j := range 32 {
				c := create(fmt.Sprint("o", i, "-", j), name)
				if i+j == 0 {
					c = create("b", name)
				}
				c.Units = claim.Shared
				s.must(t, c)
			}
			s.must(t, create("q", name))
		}
		time.Sleep(contract)
		for i := range 20 {
			s.must(t, create(fmt.Sprint("z", i), "of q"))
		}
		s.must(t, create("y", "of b"))
		started := time.Now()
		time.Sleep(contract)
		if s.get(t, "y-of b").Status == claim.Aborted {
			return
		}
		for s.get(t, "y-of b").Status == claim.Waiting && time.Since(started) < time.Hour {
			time.Sleep(time.Second)
		}
		t.Errorf("the deadlock has lasted for %s", time.Since(started))
	})
}

// TestNamesOfLastingDeadlocks: all resources of an allowed deadlock are named, even if a waiter holds nothing yet.
func TestNamesOfLastingDeadlocks(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		last := create("a", "1")
		last.AllowDeadlock = true
		s.must(t, create("h", "1"), create("a", "2"), create("b", "1"), create("b", "2"), last)
		time.Sleep(2 * surveyed)
		s.gaugeIs(t, 1)
		if got := s.detector.Lasting(); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("resources in lasting deadlocks: %q", got)
		}
	})
}

// TestNobodyIsAbortedForOneWhoWaitsForItself: a claim is not aborted if another claim of its owner waits for the
// owner itself.
func TestNobodyIsAbortedForOneWhoWaitsForItself(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		again := create("a", "1")
		again.ID = "again"
		s.must(t, create("a", "1"), create("a", "2"), create("c", "1"), again, create("c", "2"))
		time.Sleep(contract)
		s.statusesAre(t, map[string]claim.Status{"c-2": claim.Waiting})
		s.must(t, claim.End{ID: "a-1"}, claim.End{ID: "a-2"}) // another goroutine of a does its work
		s.statusesAre(t, map[string]claim.Status{"c-1": claim.Active, "c-2": claim.Active})
	})
}

// sorted is a store whose WaitsOf reads the owners in the order of an index, as a database does.
type sorted struct{ db.Store }

func (s sorted) WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
	owners = slices.Clone(owners)
	slices.SortFunc(owners, func(a, b claim.OwnerKey) int { return cmp.Compare(a.Owner, b.Owner) })
	return s.Store.WaitsOf(ctx, owners, limit)
}

// TestSurveyBesideManyWaits: a deadlock that no server has examined is ended, however many claims the other owners wait for.
func TestSurveyBesideManyWaits(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, create("a", "x"))
		w.Must(t, create("other", "x"))
		for i := range waits.MaxVisited {
			w.Must(t, create("holder", fmt.Sprint(i)))
			w.Must(t, create("a", fmt.Sprint(i)))
		}
		for _, cmd := range []claim.Create{create("b", "1."), create("c", "2."), create("b", "2."), create("c", "1.")} {
			time.Sleep(time.Microsecond)
			w.Must(t, cmd)
		}
		time.Sleep(contract)
		s := serve(t, w.Committer, sorted{w.Store}, nil)
		time.Sleep(10 * surveyed)
		s.statusesAre(t, map[string]claim.Status{"b-2.": claim.Waiting, "c-1.": claim.Aborted})
	})
}

// TestDeadlockAfterClockStep: a deadlock is ended though the clock of the store has stepped back while its claims began to wait.
func TestDeadlockAfterClockStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		store, err := replica.OpenWith(filepath.Join(t.TempDir(), "data"), replica.Options{Wall: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }})
		committertest.Check(t, err)
		t.Cleanup(func() { committertest.Check(t, store.Close()) })
		queues := committer.New(store, committer.Config{Timeout: time.Minute, Log: slog.New(slog.DiscardHandler), Metrics: committer.NewMetrics(prometheus.NewRegistry())})
		committertest.Run(t, queues)
		s := serve(t, queues, store, nil)
		s.must(t, create("a", "1"), create("b", "2"), create("a", "2"))
		time.Sleep(contract)
		offset.Store(int64(-time.Hour))
		s.must(t, create("b", "1"))
		started := time.Now()
		for s.get(t, "a-2").Status == claim.Waiting && s.get(t, "b-1").Status == claim.Waiting && time.Since(started) < 3*time.Hour {
			time.Sleep(time.Second)
		}
		if lasted := time.Since(started); lasted > surveyed {
			t.Errorf("the deadlock has lasted for %s", lasted)
		}
	})
}

// surveys is a store that counts surveys.
type surveys struct {
	db.Store
	n atomic.Int64
}

func (s *surveys) Contended(ctx context.Context, prefix string, after *db.Contention, limit int) ([]db.Resource, claim.Instant, error) {
	s.n.Add(1)
	return s.Store.Contended(ctx, prefix, after, limit)
}

// TestSurveysAreRare: others that wait for a resource of a deadlock that is allowed, and give up, cause no surveys.
func TestSurveysAreRare(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		store := &surveys{Store: w.Store}
		s := serve(t, w.Committer, store, nil)
		first, last := create("a", "2"), create("b", "1")
		first.AllowDeadlock, last.AllowDeadlock = true, true
		s.must(t, create("a", "1"), create("b", "2"), first, last)
		time.Sleep(2 * surveyed)
		before := store.n.Load()
		for i := range 600 {
			c := create(fmt.Sprint("c", i), "1")
			s.must(t, c)
			time.Sleep(100 * time.Millisecond)
			s.must(t, claim.End{ID: c.ID})
		}
		if n := store.n.Load() - before; n > 15 {
			t.Errorf("%d surveys in a minute", n)
		}
	})
}
