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

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/upkeep"
	"github.com/locket-service/locket/internal/service/watch"
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
		counts(t, w, db.Census{Active: 1, Waiting: 1, Finished: 253})
		time.Sleep(23 * time.Second) // the clocks may differ by ten seconds, and it rests for ten when it finds nothing
		counts(t, w, db.Census{Active: 1, Waiting: 1, Finished: 3})
		time.Sleep(25 * time.Second)
		counts(t, w, db.Census{Active: 1, Waiting: 1})
	})
}

func TestHistoryLimit(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		finish(t, w, "old", 20)
		w.Must(t, claim.Create{ID: "live", Resource: "live", TTL: time.Hour})
		committertest.Run(t, upkeep.NewJanitor(w.Store, upkeep.History{Retention: time.Hour, Limit: 5}, w.Log, w.Registry))
		time.Sleep(1100 * time.Millisecond)
		counts(t, w, db.Census{Active: 1, Finished: 5})
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
		counts(t, w, db.Census{Active: 1, Finished: 5})
	})
}

// TestHistoryMinimum: the limit deletes no claim that ended a short time ago, however many claims have ended since.
func TestHistoryMinimum(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		const minimum = 2 * time.Minute
		committertest.Run(t, upkeep.NewJanitor(w.Store, upkeep.History{Retention: time.Hour, Limit: 5, Minimum: minimum}, w.Log, prometheus.NewRegistry()))
		w.Must(t, claim.Create{ID: "once", Resource: "mine", TTL: time.Hour})
		w.Must(t, claim.SetStatus{ID: "once", Status: claim.Released})
		finish(t, w, "flood", 60)
		time.Sleep(minimum - time.Second)
		again := w.Must(t, claim.Create{ID: "once", Resource: "mine", TTL: time.Hour}) // a late retry
		if again.Status != claim.Released {
			t.Errorf("a retry has taken the lock again: it is %s", again.Status)
		}
		counts(t, w, db.Census{Finished: 61})
		time.Sleep(time.Minute)
		counts(t, w, db.Census{Finished: 5})
	})
}

// TestServerThatIsRestartedOften: a server that always stops before the retention time has passed still deletes old
// claims, and no others, even if its clock steps while no server runs.
func TestServerThatIsRestartedOften(t *testing.T) {
	for _, step := range []time.Duration{0, 30 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				const minimum = 10 * time.Minute
				store := &steppedStore{Store: w.Store}
				w.Must(t, claim.Create{ID: "live", Resource: "live", TTL: 100 * time.Hour}) // so that lease time passes
				run := func(d time.Duration) {
					history := upkeep.History{Retention: minimum, Limit: 1_000_000, Minimum: minimum}
					janitor := committertest.Run(t, upkeep.NewJanitor(store, history, w.Log, prometheus.NewRegistry()))
					time.Sleep(d)
					committertest.Stop(t, janitor)
				}
				run(5 * time.Minute)
				finish(t, w, "c", 1)
				run(5 * time.Minute)
				store.step.Store(int64(step))
				run(4 * time.Minute)
				if !w.Has(t, "c0") {
					t.Fatal("what has ended nine minutes ago is deleted")
				}
				run(5 * time.Minute)
				run(5 * time.Minute)
				if w.Has(t, "c0") {
					t.Error("what has ended nineteen minutes ago is not deleted")
				}
			})
		})
	}
}

// TestStepsOfTheClock: after a step of the database's clock by more than a day, claims that have just ended and
// resources that were just used are not deleted: a repeated request finds its claim.
func TestStepsOfTheClock(t *testing.T) {
	for _, step := range []time.Duration{25 * time.Hour, -25 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				const minimum = 2 * time.Minute
				store := &steppedStore{Store: w.Store}
				history := upkeep.History{Retention: 24 * time.Hour, Limit: 1_000_000, Minimum: minimum}
				committertest.Run(t, upkeep.NewJanitor(store, history, w.Log, prometheus.NewRegistry()))
				rest := func() { w.SetLive(false, w.Grants()) } // it need not beat for hours
				rest()
				time.Sleep(3 * time.Hour)
				finish(t, w, "c", 1)
				rest()
				store.step.Store(int64(step))
				for range 2 { // there, and back again
					time.Sleep(minimum/2 - time.Second)
					if !w.Has(t, "c0") {
						t.Fatal("its history is deleted")
					}
					row, _, err := w.Store.Queue(t.Context(), "r", 1)
					committertest.Check(t, err)
					if row.Version == 0 {
						t.Fatal("its resource is deleted")
					}
					store.step.Store(0)
				}
				store.step.Store(int64(25 * time.Hour))
				time.Sleep(2 * time.Hour)
				if row, _, err := w.Store.Queue(t.Context(), "r", 1); w.Has(t, "c0") || row.Version != 0 || err != nil {
					t.Errorf("it is never deleted: %+v (%v)", row, err)
				}
			})
		})
	}
}

// steppedStore is a store whose clock has stepped since it was written in.
type steppedStore struct {
	db.Store
	step atomic.Int64
}

func (s *steppedStore) Now(ctx context.Context) (claim.Instant, error) {
	now, err := s.Store.Now(ctx)
	now.Wall = now.Wall.Add(time.Duration(s.step.Load()))
	return now, err
}

// TestCountHangs: counting that does not end delays pruning for a while only.
func TestCountHangs(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		finish(t, w, "old", 250)
		store := hangingCount{w.Store}
		committertest.Run(t, upkeep.NewJanitor(store, upkeep.History{Retention: 5 * time.Second, Limit: 1000}, w.Log, prometheus.NewRegistry()))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		counts(t, w, db.Census{})
		finish(t, w, "new", 250)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		counts(t, w, db.Census{})
	})
}

// hangingCount is a store whose Census does not end by itself.
type hangingCount struct{ db.Store }

func (hangingCount) Census(ctx context.Context, _ int) (db.Census, error) {
	<-ctx.Done()
	return db.Census{}, ctx.Err()
}

// TestJanitorAfterFailure: it continues when the database is back.
func TestJanitorAfterFailure(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		finish(t, w, "old", 3)
		away := &awayStore{Store: w.Store}
		away.away.Store(true)
		committertest.Run(t, upkeep.NewJanitor(away, upkeep.History{Retention: time.Second, Limit: 1000}, w.Log, prometheus.NewRegistry()))
		time.Sleep(5 * time.Second)
		counts(t, w, db.Census{Finished: 3})
		away.away.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		counts(t, w, db.Census{})
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
			rounds := 12
			if name == "committer" {
				rounds = 5 // each has a store of its own
			}
			for i := range rounds {
				process := ifrit.Background(runner())
				if i%2 == 0 {
					<-process.Ready()
				}
				time.Sleep(time.Duration(i%4) * 20 * time.Millisecond) // real time: it has done something, or nothing
				process.Signal(os.Interrupt)
				if err := <-process.Wait(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
