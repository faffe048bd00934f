package upkeep_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/upkeep"
)

// TestSweep: more leases than one sweep takes at once end, all of them within a second.
func TestSweep(t *testing.T) {
	const leases = 600
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		var cmds []claim.Command
		for i := range leases {
			cmds = append(cmds, claim.Acquire{ID: fmt.Sprint(i), Resource: fmt.Sprint(i), Owner: "o", TTL: time.Second})
		}
		for _, r := range w.Send(t.Context(), cmds...) {
			committertest.Check(t, (<-r).Err)
		}
		w.Must(t, claim.Create{ID: "waits", Resource: "0", TTL: time.Hour})
		committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		counts(t, w, db.Census{Active: leases, Finished: 1}) // with the waiter, without its predecessor
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		counts(t, w, db.Census{Active: 1, Finished: leases})
		if n := w.Metric(t, "locket_expiries_total"); n != leases {
			t.Errorf("%v expiries were counted", n)
		}
	})
}

// TestSweepOnTime: the sweeper wakes for the end of each lease with waiters, even if it comes just after a look that
// finds nothing.
func TestSweepOnTime(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		for i := range 40 {
			resource, ttl := fmt.Sprint(i), time.Second+time.Duration(i)*2*time.Millisecond
			due := time.Now().Add(ttl)
			w.Must(t, claim.Create{ID: "holder" + resource, Resource: resource, TTL: ttl})
			w.Must(t, claim.Create{ID: "waits" + resource, Resource: resource, TTL: time.Hour})
			<-w.Await(t.Context(), "waits"+resource)
			if late := time.Since(due); late < 0 || late > 5*time.Millisecond {
				t.Errorf("a lease of %v ended %v after its deadline", ttl, late)
			}
		}
	})
}

// locked is a store where somebody locks a session of a dead server.
type locked struct {
	db.Store
	asked atomic.Int64
	free  atomic.Bool
}

func (l *locked) DetachSilent(context.Context, time.Duration) (int, error) {
	if l.asked.Add(1); l.free.Load() {
		return 0, nil
	}
	return 0, db.ErrRowLocked
}

// TestSweepBesideLockedSession: leases end even while the sessions of a dead server cannot be detached. That is retried
// once a second, and not reported as if leases did not end.
func TestSweepBesideLockedSession(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		var lines bytes.Buffer
		store := &locked{Store: w.Store}
		w.Must(t, claim.Create{ID: "holder", Resource: "r", TTL: time.Second})
		w.Must(t, claim.Create{ID: "waits", Resource: "r", TTL: time.Hour})
		sweeper := committertest.Run(t, upkeep.NewSweeper(store, w.Committer, slog.New(slog.NewTextHandler(&lines, nil))))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		counts(t, w, db.Census{Active: 1, Finished: 1})
		if n := store.asked.Load(); n == 0 || n > 4 {
			t.Errorf("%d attempts in three seconds", n)
		}
		store.free.Store(true)
		time.Sleep(3 * time.Second)
		committertest.Stop(t, sweeper)
		log := lines.String()
		if strings.Count(log, "\n") != 2 || !strings.Contains(log, db.ErrRowLocked.Error()) || !strings.Contains(log, "detached again") {
			t.Errorf("the log is\n%s", log)
		}
	})
}

// detachedSession makes a session that holds claims, and is detached.
func detachedSession(t *testing.T, w *committertest.World, claims int) {
	t.Helper()
	w.Session(t, claims)
	w.Must(t, claim.Detach{ID: "s", Server: "here"})
}

// TestSweepBesideLargeSession: a lease ends at its deadline even while a session with very many claims is being ended
// by many transactions.
func TestSweepBesideLargeSession(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		const steps = 20
		detachedSession(t, w, steps*claim.MaxEnds)
		w.Must(t, claim.Create{ID: "holder", Resource: "r", TTL: time.Second})
		w.Must(t, claim.Create{ID: "waits", Resource: "r", TTL: time.Hour})
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				time.Sleep(200 * time.Millisecond)
				return s.Update(ctx, fn)
			}
		})
		committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if c, _, _, err := w.Store.Get(t.Context(), "waits", 0); err != nil || c.Status != claim.Active {
			t.Errorf("a second after the lease has run out, the next claim is %s (%v)", c.Status, err)
		}
		if s, _, err := w.Store.Session(t.Context(), "s"); err != nil || !s.Ends() {
			t.Errorf("the session does not end meanwhile: %+v (%v)", s, err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		counts(t, w, db.Census{Active: 1, Finished: steps*claim.MaxEnds + 1})
	})
}

// TestSweepOfVeryLargeSession: a session that takes longer to end than a sweep waits still ends, and is not reported as
// an outage.
func TestSweepOfVeryLargeSession(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		const steps = 20
		detachedSession(t, w, steps*claim.MaxEnds)
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				time.Sleep(time.Second)
				return s.Update(ctx, fn)
			}
		})
		var lines bytes.Buffer
		sweeper := committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, slog.New(slog.NewTextHandler(&lines, nil))))
		time.Sleep(5 * steps * time.Second) // lease time passes more slowly beside such transactions
		counts(t, w, db.Census{Finished: steps * claim.MaxEnds})
		committertest.Stop(t, sweeper)
		if lines.Len() > 0 {
			t.Errorf("the log is\n%s", &lines)
		}
	})
}

// TestSweepOfHangingSession: a database that ends nothing of a session is an outage.
func TestSweepOfHangingSession(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		detachedSession(t, w, 1)
		goOn := w.Store.Hold()
		var lines bytes.Buffer
		sweeper := committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, slog.New(slog.NewTextHandler(&lines, nil))))
		time.Sleep(20 * time.Second)
		goOn()
		time.Sleep(20 * time.Second)
		counts(t, w, db.Census{Finished: 1})
		committertest.Stop(t, sweeper)
		if log := lines.String(); strings.Count(log, "\n") != 2 || !strings.Contains(log, "cannot be ended") || !strings.Contains(log, "ended again") {
			t.Errorf("the log is\n%s", log)
		}
	})
}

// TestSweepOfOverload: if leases cannot be ended because too many requests wait, they are not skipped, and end as
// soon as there is room.
func TestSweepOfOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.NewBounded(t, 1, 2)
		committertest.Run(t, w.Committer)
		w.Must(t, claim.Create{ID: "holder", Resource: "r", TTL: time.Second})
		w.Must(t, claim.Create{ID: "waits", Resource: "r", TTL: time.Hour})
		w.Must(t, claim.Renew{ID: "holder"}) // it is due
		goOn := w.Store.Hold()
		replies := w.Send(t.Context(), slices.Repeat([]claim.Command{claim.Renew{ID: "none"}}, 3)...)
		var lines bytes.Buffer
		sweeper := committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, slog.New(slog.NewTextHandler(&lines, nil))))
		time.Sleep(2 * time.Second)
		goOn()
		for _, r := range replies {
			<-r
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		counts(t, w, db.Census{Active: 1, Finished: 1})
		committertest.Stop(t, sweeper)
		if strings.Contains(lines.String(), "level=ERROR") {
			t.Errorf("the log is\n%s", &lines)
		}
	})
}

// lockedRows is a transaction that finds the rows of resources named "locked…" locked.
type lockedRows struct{ db.Tx }

func (l lockedRows) Load(wanted db.Wanted) (*claim.Queues, error) {
	claims := wanted.Claims // all of them wait for "locked"
	wanted.Claims = nil
	isLocked := func(name string) bool { return strings.HasPrefix(name, "locked") }
	resources := slices.Clone(wanted.Resources)
	wanted.Resources = slices.DeleteFunc(wanted.Resources, isLocked)
	queues, err := l.Tx.Load(wanted)
	if err != nil {
		return nil, err
	}
	queues.Refuse(db.ErrRowLocked, "locked", claims...)
	for _, name := range resources {
		if isLocked(name) {
			queues.Refuse(db.ErrRowLocked, name)
		}
	}
	return queues, nil
}

// TestSweepBesideLockedRows: more resources that are due than one command takes, and more claims that nobody asks about, keep nothing else from
// ending while somebody keeps their rows locked, and are not tried without a pause. They end when the rows are free.
func TestSweepBesideLockedRows(t *testing.T) {
	const many, most = 300, 500
	for name, cmds := range map[string]func(i int) claim.Command{
		"holders": func(i int) claim.Command {
			return claim.Acquire{ID: fmt.Sprint("c", i), Resource: fmt.Sprint("locked", i), Owner: "o", TTL: time.Second}
		},
		"waiting claims": func(i int) claim.Command {
			return claim.Create{ID: fmt.Sprint("c", i), Resource: "locked", TTL: 2 * time.Second, WaitTTL: time.Second}
		},
	} {
		t.Run(name, func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				for i := range many {
					w.Must(t, cmds(i))
				}
				w.Must(t, claim.Create{ID: "last", Resource: "r", TTL: 2 * time.Second, Type: claim.Presence})
				var locked atomic.Bool
				var commands atomic.Int64
				locked.Store(true)
				w.Store.Set(func(s *committertest.Store) {
					s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
						if commands.Add(1) > most { // or a hot loop would hold the fake clock still
							locked.Store(false)
						}
						return s.Update(ctx, func(tx db.Tx) error {
							if locked.Load() {
								tx = lockedRows{tx}
							}
							return fn(tx)
						})
					}
				})
				committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
				time.Sleep(4 * time.Second)
				synctest.Wait()
				if c, _, _, err := w.Store.Get(t.Context(), "last", 0); err != nil || c.Status != claim.Expired {
					t.Errorf("it is %s (%v)", c.Status, err)
				}
				if n := commands.Load(); n > most {
					t.Errorf("%d commands in four seconds", n)
				}
				locked.Store(false)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				counts(t, w, db.Census{Finished: many + 1})
			})
		})
	}
}

// TestSweepOfWaits: claims that nobody asks about end when their wait TTL has passed, the others do not, and the next
// one gets its turn.
func TestSweepOfWaits(t *testing.T) {
	const dead = 600
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Create{ID: "holder", Resource: "r", TTL: time.Hour})
		var cmds []claim.Command
		for i := range dead {
			cmds = append(cmds, claim.Create{ID: fmt.Sprint(i), Resource: "r", TTL: time.Hour, WaitTTL: 30 * time.Second})
		}
		cmds = append(cmds, claim.Create{ID: "live", Resource: "r", TTL: time.Hour, WaitTTL: 30 * time.Second})
		for _, r := range w.Send(t.Context(), cmds...) {
			committertest.Check(t, (<-r).Err)
		}
		committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		time.Sleep(20 * time.Second)
		w.Must(t, claim.KeepWaiting{IDs: []string{"live"}})
		time.Sleep(10*time.Second - 100*time.Millisecond)
		synctest.Wait()
		counts(t, w, db.Census{Active: 1, Waiting: dead + 1})
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		counts(t, w, db.Census{Active: 1, Waiting: 1, Finished: dead})
		w.Must(t, claim.End{ID: "holder"})
		counts(t, w, db.Census{Active: 1, Finished: dead + 1})
	})
}

func counts(t *testing.T, w *committertest.World, want db.Census) {
	t.Helper()
	got, err := w.Store.Census(t.Context(), 0)
	committertest.Check(t, err)
	if got.OldestWaiting = 0; got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// TestSweepOfBrokenDatabase: a database that can be read and not written is not hammered.
func TestSweepOfBrokenDatabase(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		sweeps := 0
		names := make([]string, 256)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(context.Context, func(db.Tx) error) error { return db.ErrUnavailable }
			s.OnDue = func() ([]string, error) {
				if sweeps++; sweeps > 500 { // or a hot loop would hold the fake clock still
					return nil, nil
				}
				return names, nil
			}
		})
		sweeper := committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		time.Sleep(time.Second)
		committertest.Stop(t, sweeper)
		if sweeps > 21 {
			t.Errorf("%d sweeps in a second", sweeps)
		}
	})
}

// TestSweeperStopsWhileDatabaseHangs: the end does not wait for the database.
func TestSweeperStopsWhileDatabaseHangs(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Acquire{ID: "a", Resource: "r", Owner: "o"})
		goOn := w.Store.Hold()
		defer goOn()
		sweeper := committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		time.Sleep(2 * time.Second)
		begin := time.Now()
		committertest.Stop(t, sweeper)
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %s", took)
		}
	})
}

// asked counts the requests of a sweeper.
type asked struct {
	upkeep.Leases
	due, next atomic.Int64
}

func (a *asked) Due(ctx context.Context, query db.DueQuery) (db.Overdue, error) {
	switch {
	case query.Resources > 0:
		a.due.Add(1)
	case query.Names() == 0:
		a.next.Add(1)
	}
	return a.Leases.Due(ctx, query)
}

// TestSweepSleeps: without leases the sweeper asks the database once a second, and twice with
// leases that run out later.
func TestSweepSleeps(t *testing.T) {
	for name, cmds := range map[string][]claim.Command{
		"without leases": nil,
		"with leases":    {committertest.Lock("a"), claim.Create{ID: "b", Resource: "r", TTL: time.Hour}, claim.Create{ID: "c", Resource: "r", TTL: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				for _, cmd := range cmds {
					w.Must(t, cmd)
				}
				a := &asked{Leases: w.Store}
				committertest.Run(t, upkeep.NewSweeper(a, w.Committer, w.Log))
				time.Sleep(time.Minute)
				most := int64(1)
				if cmds != nil {
					most = 62
				}
				if due, next := a.due.Load(), a.next.Load(); due > most || next > 62 {
					t.Errorf("in a minute it asked %d times what is due, and %d times when", due, next)
				}
			})
		})
	}
}

// TestSweepAtDeadline: a lease that was made or renewed while the sweeper slept ends at its
// deadline when a claim waits, and half a second later otherwise.
func TestSweepAtDeadline(t *testing.T) {
	for _, name := range []string{"this server", "another server"} {
		t.Run(name, func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
				do, ttl := func(cmd claim.Command) { w.Must(t, cmd) }, 300*time.Millisecond
				if name == "another server" { // it hears of these within a second
					do, ttl = func(cmd claim.Command) { committertest.Transact(t, w.Store, cmd) }, 1300*time.Millisecond
				}
				time.Sleep(10*time.Second + 100*time.Millisecond)
				if name == "another server" {
					beat := func(ctx context.Context) { committertest.Check(t, w.Store.Store.Beat(ctx, false)) }
					beat(t.Context())
					committertest.Run(t, periodic.New(db.BeatInterval, beat))
				}
				do(claim.Create{ID: "holds", Resource: "r", TTL: ttl})
				do(claim.Create{ID: "waits", Resource: "r", TTL: time.Hour})
				do(claim.Create{ID: "alone", Resource: "q", TTL: ttl})
				for _, step := range []struct {
					wait         time.Duration
					waits, alone claim.Status
				}{
					{ttl - time.Millisecond, claim.Waiting, claim.Active},
					{100 * time.Millisecond, claim.Active, claim.Active},
					{400 * time.Millisecond, claim.Active, claim.Active},
					{100 * time.Millisecond, claim.Active, claim.Expired},
				} {
					time.Sleep(step.wait)
					synctest.Wait()
					for id, want := range map[string]claim.Status{"waits": step.waits, "alone": step.alone} {
						if c, _, _, err := w.Store.Get(t.Context(), id, 0); err != nil || c.Status != want {
							t.Errorf("after %s more: %s is %s (%v), want %s", step.wait, id, c.Status, err, want)
						}
					}
				}
			})
		})
	}
}

// contradiction is a transaction that cannot save resources whose names begin with "bad".
type contradiction struct{ db.Tx }

func (c contradiction) Save(queues *claim.Queues) error {
	for _, q := range queues.Changed() {
		if strings.HasPrefix(q.Resource, "bad") {
			return errors.New("its rows contradict each other")
		}
	}
	return c.Tx.Save(queues)
}

// TestSweepOfContradictions: resources that cannot be swept, and are due for longest, do not keep
// the others from it. They are tried again later.
func TestSweepOfContradictions(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		const bad, good = 300, 20 // more than one command takes
		for i := range bad {
			w.Must(t, claim.Acquire{ID: fmt.Sprint("bad", i), Resource: fmt.Sprint("bad", i), Owner: "o", TTL: time.Second})
		}
		for i := range good {
			w.Must(t, claim.Acquire{ID: fmt.Sprint("good", i), Resource: fmt.Sprint("good", i), Owner: "o", TTL: time.Second + time.Millisecond})
		}
		var commands atomic.Int64
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				commands.Add(1)
				return s.Update(ctx, func(tx db.Tx) error { return fn(contradiction{tx}) })
			}
		})
		committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		counts(t, w, db.Census{Active: bad, Finished: good})
		before := commands.Load()
		time.Sleep(5 * time.Second)
		if after := commands.Load(); after != before {
			t.Errorf("%d commands for resources that are left alone", after-before)
		}
		w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		counts(t, w, db.Census{Finished: bad + good})
	})
}

// hanging is a store whose first answers do not come.
type hanging struct {
	upkeep.Leases
	due, next atomic.Int64
}

func hang(ctx context.Context, asked *atomic.Int64) error {
	if asked.Add(1) > 1 {
		return nil
	}
	<-ctx.Done()
	return fmt.Errorf("%w: %w", db.ErrUnavailable, ctx.Err())
}

func (h *hanging) Due(ctx context.Context, query db.DueQuery) (db.Overdue, error) {
	var err error
	switch {
	case query.Resources > 0:
		err = hang(ctx, &h.due)
	case query.Names() == 0:
		err = hang(ctx, &h.next)
	}
	if err != nil {
		return db.Overdue{}, err
	}
	return h.Leases.Due(ctx, query)
}

// TestSweepAfterHanging: requests without an answer time out, and the sweep continues.
func TestSweepAfterHanging(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Second})
		committertest.Run(t, upkeep.NewSweeper(&hanging{Leases: w.Store}, w.Committer, w.Log))
		time.Sleep(40 * time.Second)
		synctest.Wait()
		counts(t, w, db.Census{Finished: 1})
	})
}

// TestNoBeatsWithoutLeases: a server with nothing to protect writes nothing, and leases that are
// made afterwards run as always.
func TestNoBeatsWithoutLeases(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		var beats atomic.Int64
		w.Store.Set(func(s *committertest.Store) { s.OnBeat = func() error { beats.Add(1); return nil } })
		committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		time.Sleep(2 * time.Second)
		rest := func(what string) {
			t.Helper()
			before := beats.Load()
			time.Sleep(time.Minute)
			if n := beats.Load() - before; n != 0 {
				t.Errorf("%s: %d beats in a minute", what, n)
			}
		}
		rest("at the start")
		w.Must(t, claim.Create{ID: "holds", Resource: "r", TTL: 10 * time.Second})
		begin, err := w.Store.Now(t.Context())
		committertest.Check(t, err)
		w.Must(t, claim.Create{ID: "waits", Resource: "r", TTL: time.Minute})
		time.Sleep(9900 * time.Millisecond)
		end, err := w.Store.Now(t.Context())
		committertest.Check(t, err)
		if lease := end.Lease.Sub(begin.Lease); lease < 9800*time.Millisecond {
			t.Errorf("with leases, lease time moved by %s in 9.9 s", lease)
		}
		if c, _, _, err := w.Store.Get(t.Context(), "waits", 0); err != nil || c.Status != claim.Waiting {
			t.Errorf("waits is %s (%v)", c.Status, err)
		}
		time.Sleep(200 * time.Millisecond)
		if c, _, _, err := w.Store.Get(t.Context(), "waits", 0); err != nil || c.Status != claim.Active {
			t.Errorf("waits is %s (%v)", c.Status, err)
		}
		w.Must(t, claim.End{ID: "waits"})
		time.Sleep(2 * time.Second)
		rest("afterwards")
	})
}

// TestSweepReports: the log says once that the database does not answer, and once that it does.
func TestSweepReports(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		var lines bytes.Buffer
		w.Store.Set(func(s *committertest.Store) {
			s.OnDue = func() ([]string, error) { return nil, fmt.Errorf("%w: the file was moved", db.ErrUnavailable) }
		})
		sweeper := committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, slog.New(slog.NewTextHandler(&lines, nil))))
		time.Sleep(3 * time.Second)
		w.Store.Set(func(s *committertest.Store) { s.OnDue = nil })
		time.Sleep(3 * time.Second)
		committertest.Stop(t, sweeper)
		log := lines.String()
		if strings.Count(log, "\n") != 2 || !strings.Contains(log, "level=WARN") || !strings.Contains(log, "the file was moved") || !strings.Contains(log, "ended again") {
			t.Errorf("the log is\n%s", log)
		}
	})
}

// TestSweepOfHalfEndedSession: a session whose end was interrupted ends as it began to.
func TestSweepOfHalfEndedSession(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		const n = 2*claim.MaxEnds + 10
		w.Session(t, n)
		end := claim.EndSession{ID: "s", Active: claim.Revoked, Waiting: claim.Revoked, Reason: "reset"}
		_, err := db.Transact(t.Context(), w.Store.Store, db.Batch{Requests: []claim.Request{{Command: end}}})
		committertest.Check(t, err)
		counts(t, w, db.Census{Active: n - claim.MaxEnds, Finished: claim.MaxEnds, Sessions: 1})
		committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		counts(t, w, db.Census{Finished: n})
		for i := range n {
			if c, _, _, err := w.Store.Get(t.Context(), fmt.Sprint(i), 0); err != nil || c.Status != claim.Revoked || c.Reason != "reset" {
				t.Fatalf("%+v (%v)", c, err)
			}
		}
		if s, _, err := w.Store.Session(t.Context(), "s"); !errors.Is(err, claim.ErrSessionEnded) {
			t.Errorf("%+v (%v)", s, err)
		}
	})
}
