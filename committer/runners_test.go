package committer_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/committer"
	"github.com/locket-service/locket/db"
)

// TestSweep: more leases than one sweep takes at once end, all of them within a second.
func TestSweep(t *testing.T) {
	const leases = 600
	bubble(t, func(t *testing.T, w *world) {
		var cmds []claim.Command
		for i := range leases {
			cmds = append(cmds, claim.Acquire{ID: fmt.Sprint(i), Resource: fmt.Sprint(i), Owner: "o", TTL: time.Second})
		}
		for _, r := range w.send(t.Context(), cmds...) {
			must(t, (<-r).err)
		}
		w.do(t, claim.Create{ID: "waits", Resource: "0", TTL: time.Hour})
		run(t, committer.NewSweeper(w.store, w.Committer, w.log))
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		w.counts(t, db.Counts{Active: leases, Finished: 1}) // with the waiter, without its predecessor
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		w.counts(t, db.Counts{Active: 1, Finished: leases})
		if n := w.metric(t, "locket_expiries_total"); n != leases {
			t.Errorf("%v expiries were counted", n)
		}
	})
}

func (w *world) counts(t *testing.T, want db.Counts) {
	t.Helper()
	got, err := w.store.Count(t.Context())
	must(t, err)
	if got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// TestSweepOfBrokenDatabase: a database that can be read and not written is not hammered.
func TestSweepOfBrokenDatabase(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		sweeps := 0
		names := make([]string, 256)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		w.store.set(func(s *store) {
			s.transact = func(context.Context, func(db.Tx) error) error { return db.ErrUnavailable }
			s.due = func() ([]string, error) {
				if sweeps++; sweeps > 500 { // or a hot loop would hold the fake clock still
					return nil, nil
				}
				return names, nil
			}
		})
		sweeper := run(t, committer.NewSweeper(w.store, w.Committer, w.log))
		time.Sleep(time.Second)
		stop(t, sweeper)
		if sweeps > 21 {
			t.Errorf("%d sweeps in a second", sweeps)
		}
	})
}

// TestSweeperStopsWhileDatabaseHangs: the end does not wait for the database.
func TestSweeperStopsWhileDatabaseHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.do(t, claim.Acquire{ID: "a", Resource: "r", Owner: "o"})
		goOn := w.store.hold()
		defer goOn()
		sweeper := run(t, committer.NewSweeper(w.store, w.Committer, w.log))
		time.Sleep(2 * time.Second)
		begin := time.Now()
		stop(t, sweeper)
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %s", took)
		}
	})
}

// finish makes and releases claims, a millisecond apart.
func (w *world) finish(t *testing.T, prefix string, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint(prefix, i)
		w.do(t, claim.Create{ID: id, Resource: "r", TTL: time.Hour})
		w.do(t, claim.SetStatus{ID: id, Status: claim.Released})
		time.Sleep(time.Millisecond)
	}
}

func TestRetention(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.do(t, claim.Create{ID: "live", Resource: "live", TTL: time.Hour})
		w.do(t, claim.Create{ID: "waits", Resource: "live", TTL: time.Hour})
		run(t, committer.NewJanitor(w.store, 5*time.Second, 1000, w.log, w.metrics))
		w.finish(t, "old", 250) // more than one transaction deletes
		time.Sleep(3 * time.Second)
		w.finish(t, "new", 3)
		time.Sleep(1500 * time.Millisecond) // 4.5 s after the last of the old ones
		w.counts(t, db.Counts{Active: 1, Waiting: 1, Finished: 253})
		time.Sleep(2 * time.Second)
		w.counts(t, db.Counts{Active: 1, Waiting: 1, Finished: 3})
		time.Sleep(4 * time.Second)
		w.counts(t, db.Counts{Active: 1, Waiting: 1})
	})
}

func TestHistoryLimit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.finish(t, "old", 20)
		w.do(t, claim.Create{ID: "live", Resource: "live", TTL: time.Hour})
		run(t, committer.NewJanitor(w.store, time.Hour, 5, w.log, w.metrics))
		time.Sleep(1100 * time.Millisecond)
		w.counts(t, db.Counts{Active: 1, Finished: 5})
		for i := range 20 {
			if id := fmt.Sprint("old", i); w.has(t, id) != (i >= 15) {
				t.Errorf("claim %s is there: %v", id, w.has(t, id))
			}
		}
		for status, want := range map[string]float64{"waiting": 0, "active": 1, "finished": 20} {
			if got := w.metric(t, "locket_claims", status); got != want {
				t.Errorf("%v %s claims were counted, want %v", got, status, want)
			}
		}
		w.finish(t, "new", 10) // the limit is looked at once a minute
		time.Sleep(61 * time.Second)
		w.counts(t, db.Counts{Active: 1, Finished: 5})
	})
}

// TestJanitorAfterFailure: it goes on when the database is back.
func TestJanitorAfterFailure(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.finish(t, "old", 3)
		away := &awayStore{Store: w.store}
		away.away.Store(true)
		run(t, committer.NewJanitor(away, time.Second, 1000, w.log, w.metrics))
		time.Sleep(5 * time.Second)
		w.counts(t, db.Counts{Finished: 3})
		away.away.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		w.counts(t, db.Counts{})
	})
}

// awayStore is a store whose clock cannot be read.
type awayStore struct {
	db.Store
	away atomic.Bool
}

func (s *awayStore) Now(ctx context.Context) (claim.Instant, error) {
	if s.away.Load() {
		return claim.Instant{}, db.ErrUnavailable
	}
	return s.Store.Now(ctx)
}

// TestStartStop starts and stops every runner again and again, some of them before they
// have done anything.
func TestStartStop(t *testing.T) {
	w := start(t, 0)
	w.do(t, claim.Acquire{ID: "a", Resource: "r", Owner: "o"})
	for name, runner := range map[string]func() ifrit.Runner{
		"committer": func() ifrit.Runner { return newWorld(t, 0).Committer },
		"sweeper":   func() ifrit.Runner { return committer.NewSweeper(w.store, w.Committer, w.log) },
		"follower":  func() ifrit.Runner { return committer.NewFollower(w.store, w.Committer, w.log) },
		"janitor":   func() ifrit.Runner { return committer.NewJanitor(w.store, time.Hour, 10, w.log, w.metrics) },
	} {
		t.Run(name, func(t *testing.T) {
			rounds := 30
			if name == "committer" {
				rounds = 5 // each has a store of its own
			}
			for i := range rounds {
				process := ifrit.Background(runner())
				if i%2 == 0 {
					<-process.Ready()
				}
				time.Sleep(time.Duration(i%4) * 20 * time.Millisecond)
				begin := time.Now()
				process.Signal(os.Interrupt)
				if err := <-process.Wait(); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took > 2*time.Second {
					t.Errorf("the end took %s", took)
				}
			}
		})
	}
}
