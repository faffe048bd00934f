package committer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/tests/harness"
)

func locks(prefix string, n int) (cmds []claim.Command) {
	for i := range n {
		cmds = append(cmds, committertest.Lock(fmt.Sprint(prefix, i)))
	}
	return cmds
}

// TestBatch: what arrives while a transaction is under way goes together into the next.
func TestBatch(t *testing.T) {
	for _, c := range []struct{ maxBatch, transactions int }{{0, 2}, {100, 2}, {99, 3}, {30, 5}, {1, 101}} {
		t.Run(fmt.Sprint("of ", c.maxBatch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := committertest.Start(t, c.maxBatch)
				goOn := w.Store.Hold()
				replies := w.Send(t.Context(), committertest.Lock("first"))
				replies = append(replies, w.Send(t.Context(), locks("l", 100)...)...)
				goOn()
				for _, r := range replies {
					if got := committertest.Receive(t, r); got.Err != nil || got.Claim.Status != claim.Active {
						t.Errorf("got %v", got)
					}
				}
				if transactions, requests := w.Batches(t); transactions != c.transactions || requests != 101 {
					t.Errorf("%d requests in %d transactions, want %d", requests, transactions, c.transactions)
				}
			})
		})
	}
}

// TestBatchIsInOrder: a batch on one resource has the same results as its requests one by one.
func TestBatchIsInOrder(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		goOn := w.Store.Hold()
		w.Send(t.Context(), committertest.Lock("first"))
		var replies []chan committertest.Reply
		for i := range 10 {
			id := fmt.Sprint("c", i)
			replies = append(replies, w.Send(t.Context(), claim.Create{ID: id, Resource: "r", TTL: time.Hour})...)
		}
		ends := w.Send(t.Context(), claim.Acquire{ID: "x", Resource: "r", Owner: "o", TTL: time.Hour})
		goOn()
		last := uint64(0)
		for i, r := range replies {
			got := committertest.Receive(t, r)
			if want := map[bool]claim.Status{true: claim.Active, false: claim.Waiting}[i == 0]; got.Err != nil || got.Claim.Status != want {
				t.Errorf("claim %d: %v", i, got)
			}
			if got.Claim.Enqueued <= last {
				t.Errorf("enqueued at %d after %d", got.Claim.Enqueued, last)
			}
			last = got.Claim.Enqueued
		}
		var collision *claim.CollisionError
		if err := committertest.Receive(t, ends[0]).Err; !errors.As(err, &collision) || collision.Holder.ID != "c0" {
			t.Errorf("the lock behind them: %v", err)
		}
		if transactions, _ := w.Batches(t); transactions != 2 {
			t.Errorf("%d transactions", transactions)
		}
	})
}

// TestSameID: two requests of one batch want the same new id for different resources. One
// of them gets it; nobody else notices.
func TestSameID(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		goOn := w.Store.Hold()
		w.Send(t.Context(), committertest.Lock("first"))
		same := w.Send(t.Context(),
			claim.Create{ID: "a", Resource: "r1", TTL: time.Hour}, claim.Create{ID: "a", Resource: "r2", TTL: time.Hour})
		others := w.Send(t.Context(), locks("l", 10)...)
		goOn()
		one, two := committertest.Receive(t, same[0]), committertest.Receive(t, same[1])
		if one.Err != nil {
			one, two = two, one
		}
		if one.Err != nil || !errors.Is(two.Err, claim.ErrIDTaken) {
			t.Errorf("got %v and %v", one.Err, two.Err)
		}
		for _, r := range others {
			committertest.Check(t, committertest.Receive(t, r).Err)
		}
	})
}

// TestCancelled: a caller that leaves the queue is not served, and others are not affected.
func TestCancelled(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		goOn := w.Store.Hold()
		ctx, cancel := context.WithCancelCause(t.Context())
		underWay := w.Send(ctx, committertest.Lock("under way"))
		before := w.Send(t.Context(), locks("before", 3)...)
		queued := w.Send(ctx, committertest.Lock("queued"))
		after := w.Send(t.Context(), locks("after", 3)...)
		gone := errors.New("gone")
		cancel(gone)
		for _, r := range append(underWay, queued...) {
			if err := committertest.Receive(t, r).Err; !errors.Is(err, gone) { // at once: the transaction is still held
				t.Errorf("got %v", err)
			}
		}
		goOn()
		for _, r := range append(before, after...) {
			committertest.Check(t, committertest.Receive(t, r).Err)
		}
		if w.Has(t, "queued") {
			t.Error("a request was carried out that was cancelled in the queue")
		}
		for i := range 3 {
			if !w.Has(t, fmt.Sprint("before", i)) || !w.Has(t, fmt.Sprint("after", i)) {
				t.Error("a neighbour was not carried out")
			}
		}
		w.Must(t, committertest.Lock("queued")) // it may be sent again
	})
}

// TestAlreadyCancelled: nothing is done for a caller that is gone.
func TestAlreadyCancelled(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Do(ctx, committertest.Lock("a")); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if w.Has(t, "a") {
			t.Error("it was carried out")
		}
	})
}

// bomb is a command that panics in the rules.
type bomb struct{ claim.Command }

func (bomb) Targets() []claim.Target { return []claim.Target{{Resource: "r"}} }

// fuse is a transaction that goes wrong when it saves the resource "of bad".
type fuse struct {
	db.Tx
	blow func() error
}

func (f fuse) Save(q *claim.Queues) error {
	if q.Resource("of bad") != nil {
		return f.blow()
	}
	return f.Tx.Save(q)
}

// TestSpoiler: a request that spoils its batch fails alone.
func TestSpoiler(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		bad  claim.Command
		blow func() error
		says string
	}{
		"panics in the rules": {bomb{}, nil, "panic"},
		"panics in the store": {committertest.Lock("bad"), func() error { panic("boom") }, "boom"},
		"is an error to save": {committertest.Lock("bad"), func() error { return broken }, "broken"},
		"conflicts for ever":  {committertest.Lock("bad"), func() error { return db.ErrConflict }, "came first"},
	} {
		t.Run(name, func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				gate := make(chan struct{})
				w.Store.Set(func(s *committertest.Store) {
					s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
						<-gate
						return s.Update(ctx, func(tx db.Tx) error { return fn(fuse{tx, c.blow}) })
					}
				})
				w.Send(t.Context(), committertest.Lock("first"))
				replies := w.Send(t.Context(), locks("before", 20)...)
				bad := w.Send(t.Context(), c.bad)
				replies = append(replies, w.Send(t.Context(), locks("after", 11)...)...)
				close(gate)
				if err := committertest.Receive(t, bad[0]).Err; err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("the bad one: %v", err)
				}
				for _, r := range replies {
					if got := committertest.Receive(t, r); got.Err != nil || !w.Has(t, got.Claim.ID) {
						t.Errorf("a neighbour: %v", got)
					}
				}
				if w.Has(t, "bad") {
					t.Error("the bad one left something behind")
				}
				if transactions, _ := w.Batches(t); transactions > 2+2*6 {
					t.Errorf("%d transactions for 32 requests, one of them bad", transactions)
				}
			})
		})
	}
}

// TestUnavailable: when the database is unavailable all callers of a batch get the error at once.
func TestUnavailable(t *testing.T) {
	for _, away := range []error{db.ErrUnavailable, db.ErrOutcomeUnknown} {
		t.Run(away.Error(), func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				goOn := w.Store.Hold()
				w.Send(t.Context(), committertest.Lock("first"))
				replies := w.Send(t.Context(), locks("l", 50)...)
				w.Store.Set(func(s *committertest.Store) {
					s.OnTransact = func(context.Context, func(db.Tx) error) error { return fmt.Errorf("away: %w", away) }
				})
				goOn()
				for _, r := range replies {
					if got := committertest.Receive(t, r); !errors.Is(got.Err, away) || got.Claim.ID != "" {
						t.Errorf("got %v", got)
					}
				}
				if transactions, _ := w.Batches(t); transactions != 2 {
					t.Errorf("%d transactions", transactions)
				}
				if failures := w.Metric(t, "locket_commit_failures_total"); failures != 1 {
					t.Errorf("%v failures", failures)
				}
				w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
				w.Must(t, committertest.Lock("l0"))
			})
		})
	}
}

// TestHanging: a transaction that hangs ends with its timeout, and those after it work.
func TestHanging(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		var hung atomic.Int32
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				if hung.Add(1) > 1 {
					return s.Update(ctx, fn)
				}
				<-ctx.Done()
				return fmt.Errorf("%w: %w", db.ErrUnavailable, ctx.Err())
			}
		})
		begin := time.Now()
		hangs := w.Send(t.Context(), committertest.Lock("hangs"))
		time.Sleep(committertest.Timeout * 6 / 10) // what has waited for the timeout is refused with it
		next := w.Send(t.Context(), committertest.Lock("next"))
		if err := committertest.Receive(t, hangs[0]).Err; !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		committertest.Check(t, committertest.Receive(t, next[0]).Err)
		if took := time.Since(begin); took != committertest.Timeout {
			t.Errorf("it took %s", took)
		}
	})
}

// TestRunTwice: a transaction may be rolled back and run again; the last run decides.
func TestRunTwice(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Acquire{ID: "a", Resource: "r", Owner: "jim", TTL: time.Hour})
		again := errors.New("again")
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				err := s.Update(ctx, func(tx db.Tx) error { return errors.Join(fn(tx), again) })
				if !errors.Is(err, again) {
					t.Errorf("the first run: %v", err)
				}
				// In between another server releases the lock.
				if err := s.Update(ctx, func(tx db.Tx) error { return committertest.Execute(tx, claim.Release{Resource: "r", Owner: "jim"}) }); err != nil {
					t.Error(err)
				}
				return s.Update(ctx, fn)
			}
		})
		got := w.Must(t, claim.Acquire{ID: "b", Resource: "r", Owner: "joe", TTL: time.Hour})
		if got.ID != "b" || got.Owner != "joe" {
			t.Errorf("got %v", got)
		}
	})
}

// TestStopping: the batch under way is finished, and what comes later is refused.
func TestStopping(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		goOn := w.Store.Hold()
		underWay := w.Send(t.Context(), committertest.Lock("under way"))
		queued := w.Send(t.Context(), locks("queued", 5)...)
		ended := make(chan struct{})
		go func() { committertest.Stop(t, w.Process); close(ended) }()
		synctest.Wait()
		goOn()
		<-ended
		committertest.Check(t, committertest.Receive(t, underWay[0]).Err)
		for i, r := range queued {
			err := committertest.Receive(t, r).Err
			if err != nil && !errors.Is(err, committer.ErrStopping) {
				t.Errorf("queued: %v", err)
			}
			if w.Has(t, fmt.Sprint("queued", i)) != (err == nil) {
				t.Errorf("answered %v, and the store does not agree", err)
			}
		}
		if _, err := w.Do(t.Context(), committertest.Lock("late")); !errors.Is(err, committer.ErrStopping) {
			t.Errorf("late: %v", err)
		}
	})
}

// TestStopRace: nobody hangs, whatever the moment of the end, and what was acknowledged is
// there.
func TestStopRace(t *testing.T) {
	for round := range 5 {
		w := committertest.New(t, 8)
		c := committer.New(w.Store, committer.Config{
			MaxBatch: 8, Timeout: harness.HangTimeout, Log: w.Log, Metrics: committer.NewMetrics(prometheus.NewRegistry()),
		})
		process := committertest.Run(t, c)
		var (
			callers      sync.WaitGroup
			acknowledged sync.Map
		)
		for i := range 20 {
			callers.Go(func() {
				for n := 0; ; n++ {
					id := fmt.Sprint(i, "-", n)
					_, err := c.Do(t.Context(), committertest.Lock(id))
					if errors.Is(err, committer.ErrStopping) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					acknowledged.Store(id, true)
				}
			})
		}
		time.Sleep(time.Duration(round) * 5 * time.Millisecond) // real time: it stops at one moment or another
		committertest.Stop(t, process)
		callers.Wait()
		acknowledged.Range(func(id, _ any) bool {
			if !w.Has(t, id.(string)) {
				t.Errorf("%s was acknowledged and is not there", id)
			}
			return true
		})
	}
}

// TestShortOutage: time while commits fail counts against no lease, even if it is shorter than the silence that beats
// allow.
func TestShortOutage(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, committertest.Lock("before"))
		begin, err := w.Store.Now(t.Context())
		committertest.Check(t, err)
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(context.Context, func(db.Tx) error) error { return db.ErrUnavailable }
		})
		const outage = 200 * time.Millisecond
		if _, err := w.Do(t.Context(), committertest.Lock("meanwhile")); !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		time.Sleep(outage)
		w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
		w.Must(t, committertest.Lock("after"))
		end, err := w.Store.Now(t.Context())
		committertest.Check(t, err)
		if wall, lease := end.Wall.Sub(begin.Wall), end.Lease.Sub(begin.Lease); wall < outage || lease > outage/2 {
			t.Errorf("lease time moved by %s in an outage of %s", lease, wall)
		}
	})
}

// TestStillAway: while not even beats succeed, requests are refused without a transaction that
// would have to run into its timeout as well.
func TestStillAway(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		transactions := 0
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(context.Context, func(db.Tx) error) error {
				transactions++
				return db.ErrUnavailable
			}
			s.OnResume = func() error { return db.ErrUnavailable }
		})
		for range 3 {
			if _, err := w.Do(t.Context(), committertest.Lock("l")); !errors.Is(err, db.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		}
		if transactions != 1 {
			t.Errorf("%d transactions", transactions)
		}
		w.Store.Set(func(s *committertest.Store) { s.OnTransact, s.OnResume = nil, nil })
		w.Must(t, committertest.Lock("l"))
	})
}
