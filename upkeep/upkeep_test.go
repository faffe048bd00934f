package upkeep_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/committer/committertest"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/upkeep"
	"github.com/locket-service/locket/watch"
)

// finish makes and releases claims, a millisecond apart.
func finish(t *testing.T, w *committertest.World, prefix string, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint(prefix, i)
		w.Must(t, claim.Create{ID: id, Resource: "r", TTL: time.Hour})
		w.Must(t, claim.SetStatus{ID: id, Status: claim.Released})
		time.Sleep(time.Millisecond)
	}
}

func TestRetention(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Create{ID: "live", Resource: "live", TTL: time.Hour})
		w.Must(t, claim.Create{ID: "waits", Resource: "live", TTL: time.Hour})
		committertest.Run(t, upkeep.NewJanitor(w.Store, upkeep.History{Retention: 20 * time.Second, Limit: 1000, Minimum: time.Hour}, w.Log, prometheus.NewRegistry()))
		finish(t, w, "old", 250) // more than one transaction deletes
		time.Sleep(15 * time.Second)
		finish(t, w, "new", 3)
		time.Sleep(4 * time.Second) // 19 s after the last of the old ones
		counts(t, w, db.Counts{Active: 1, Waiting: 1, Finished: 253})
		time.Sleep(11 * time.Second) // it rests for ten seconds when it finds nothing
		counts(t, w, db.Counts{Active: 1, Waiting: 1, Finished: 3})
		time.Sleep(16 * time.Second)
		counts(t, w, db.Counts{Active: 1, Waiting: 1})
	})
}

func TestHistoryLimit(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		finish(t, w, "old", 20)
		w.Must(t, claim.Create{ID: "live", Resource: "live", TTL: time.Hour})
		committertest.Run(t, upkeep.NewJanitor(w.Store, upkeep.History{Retention: time.Hour, Limit: 5}, w.Log, w.Registry))
		time.Sleep(1100 * time.Millisecond)
		counts(t, w, db.Counts{Active: 1, Finished: 5})
		for i := range 20 {
			if id := fmt.Sprint("old", i); w.Has(t, id) != (i >= 15) {
				t.Errorf("claim %s is there: %v", id, w.Has(t, id))
			}
		}
		for status, want := range map[string]float64{"waiting": 0, "active": 1, "finished": 20} {
			if got := w.Metric(t, "locket_claims", status); got != want {
				t.Errorf("%v %s claims were counted, want %v", got, status, want)
			}
		}
		finish(t, w, "new", 10) // the limit is looked at once a minute
		time.Sleep(61 * time.Second)
		counts(t, w, db.Counts{Active: 1, Finished: 5})
	})
}

// TestHistoryMinimum: the limit deletes nothing that ended a short time ago, whoever else has ended
// how many claims since.
func TestHistoryMinimum(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		const minimum = 10 * time.Minute
		committertest.Run(t, upkeep.NewJanitor(w.Store, upkeep.History{Retention: time.Hour, Limit: 5, Minimum: minimum}, w.Log, prometheus.NewRegistry()))
		w.Must(t, claim.Create{ID: "once", Resource: "mine", TTL: time.Hour})
		w.Must(t, claim.SetStatus{ID: "once", Status: claim.Released})
		finish(t, w, "flood", 300)
		time.Sleep(minimum - time.Second)
		again := w.Must(t, claim.Create{ID: "once", Resource: "mine", TTL: time.Hour}) // a late retry
		if again.Status != claim.Released {
			t.Errorf("a retry has taken the lock again: it is %s", again.Status)
		}
		counts(t, w, db.Counts{Finished: 301})
		time.Sleep(20 * time.Second)
		counts(t, w, db.Counts{Finished: 5})
	})
}

// TestCountHangs: counting that does not end delays pruning for a while only.
func TestCountHangs(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		finish(t, w, "old", 250)
		store := hangingCount{w.Store}
		committertest.Run(t, upkeep.NewJanitor(store, upkeep.History{Retention: 5 * time.Second, Limit: 1000}, w.Log, prometheus.NewRegistry()))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		counts(t, w, db.Counts{})
		finish(t, w, "new", 250)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		counts(t, w, db.Counts{})
	})
}

// hangingCount is a store whose Count does not end by itself.
type hangingCount struct{ db.Store }

func (hangingCount) Count(ctx context.Context) (db.Counts, error) {
	<-ctx.Done()
	return db.Counts{}, ctx.Err()
}

// TestJanitorAfterFailure: it goes on when the database is back.
func TestJanitorAfterFailure(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		finish(t, w, "old", 3)
		away := &awayStore{Store: w.Store}
		away.away.Store(true)
		committertest.Run(t, upkeep.NewJanitor(away, upkeep.History{Retention: time.Second, Limit: 1000}, w.Log, prometheus.NewRegistry()))
		time.Sleep(5 * time.Second)
		counts(t, w, db.Counts{Finished: 3})
		away.away.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		counts(t, w, db.Counts{})
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
	w := committertest.Start(t, 0)
	w.Must(t, claim.Acquire{ID: "a", Resource: "r", Owner: "o"})
	for name, runner := range map[string]func() ifrit.Runner{
		"committer": func() ifrit.Runner { return committertest.New(t, 0).Committer },
		"sweeper":   func() ifrit.Runner { return upkeep.NewSweeper(w.Store, w.Committer, w.Log) },
		"follower":  func() ifrit.Runner { return watch.NewFollower(w.Store, w.Hub, w.Log) },
		"janitor": func() ifrit.Runner {
			return upkeep.NewJanitor(w.Store, upkeep.History{Retention: time.Hour, Limit: 10}, w.Log, prometheus.NewRegistry())
		},
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
