package mysql

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// openAt opens a store at a node of a cluster whose clock is wrong, and beats until the test ends.
func openAt(t *testing.T, dsn string, fault time.Duration, cluster bool) *Store {
	t.Helper()
	config, err := mysql.ParseDSN(patient(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(config)
	s.fault.Store(int64(fault))
	if err := s.start(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s.cluster.Store(cluster)
	end := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(db.BeatInterval): // real time: between two beats
				if err := s.Beat(context.Background(), false); err != nil {
					t.Errorf("beat: %v", err)
				}
			}
		}
	})
	t.Cleanup(func() {
		close(end)
		beats.Wait()
		_ = s.Close()
	})
	return s
}

// dueAfter renews a lease at one server and returns the time until it is due at any of some.
func dueAfter(t *testing.T, ttl time.Duration, meanwhile func(), at *Store, servers ...*Store) (took time.Duration) {
	t.Helper()
	start := time.Now()
	results(t, at, claim.Acquire{ID: "id", Resource: "r", Owner: "o", TTL: ttl})
	meanwhile()
	eventually(t, "the lease is due", func() bool {
		for _, s := range servers {
			due, err := s.Due(t.Context(), db.DueQuery{Resources: 10})
			if err != nil {
				t.Fatal(err)
			}
			if len(due.Resources) > 0 {
				took = time.Since(start) // real time: no lease ends early, at any speed
				return true
			}
		}
		return false
	})
	return took
}

// TestSkewedNodes: servers at nodes whose clocks differ end no lease early, and lease time goes
// on. The skew is reported. TestSoakSkewedNodes has more renewals.
func TestSkewedNodes(t *testing.T) { skewedNodes(t, 1) }

// skewedNodes renews a lease at each server in each round.
func skewedNodes(t *testing.T, rounds int) {
	t.Helper()
	for _, skew := range []time.Duration{400 * time.Millisecond, 3 * time.Second, -3 * time.Second} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			dsn := fixtures.MySQL(t)
			a := openAt(t, dsn, 0, true)
			time.Sleep(db.BeatInterval) // real time: the first server beats alone for a while
			b := openAt(t, dsn, skew, true)
			const ttl = 1200 * time.Millisecond
			for _, at := range slices.Repeat([]*Store{a, b}, rounds) {
				if took := dueAfter(t, ttl, func() {}, at, a, b); took < ttl {
					t.Errorf("a lease of %s was due after %s", ttl, took)
				}
			}
			offsetA, offsetB := a.ClockState().Offset, b.ClockState().Offset
			if off := (offsetB - offsetA + skew).Abs(); off > max(db.TimelineSkew, skew.Abs()/3) {
				t.Errorf("offsets of %s and %s are reported", offsetA, offsetB)
			}
		})
	}
}

// TestClockSteps: a step of the database's clock that is too short for an outage ends no lease
// early, also one that another server has renewed, or a server that starts afterwards judges.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	const short, long = 200 * time.Millisecond, 2 * time.Second
	for _, step := range []time.Duration{short, -short, long} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			dsn := fixtures.MySQL(t)
			a, b := openAt(t, dsn, 0, false), openAt(t, dsn, 0, false)
			took := dueAfter(t, ttl, func() {
				a.fault.Store(int64(step))
				b.fault.Store(int64(step))
			}, a, a, b)
			if took < ttl {
				t.Errorf("a lease of %s was due after %s", ttl, took)
			}
			// A step that is shorter than a read takes cannot be seen.
			if state := a.ClockState(); step == long && (state.Steps == 0 || (state.Offset+step).Abs() > step/2) {
				t.Errorf("reported: %+v", state)
			}
			c := openAt(t, dsn, step, false)
			if took := dueAfter(t, ttl, func() {}, c, a, b, c); took < ttl {
				t.Errorf("a lease that a new server gave for %s was due after %s", ttl, took)
			}
		})
	}
}
