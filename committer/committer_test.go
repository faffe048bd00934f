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

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/committer"
	"github.com/locket-service/locket/db"
)

func locks(prefix string, n int) (cmds []claim.Command) {
	for i := range n {
		cmds = append(cmds, lock(fmt.Sprint(prefix, i)))
	}
	return cmds
}

// TestBatch: what arrives while a transaction is under way goes together into the next.
func TestBatch(t *testing.T) {
	for _, c := range []struct{ maxBatch, transactions int }{{0, 2}, {100, 2}, {99, 3}, {30, 5}, {1, 101}} {
		t.Run(fmt.Sprint("of ", c.maxBatch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, c.maxBatch)
				goOn := w.store.hold()
				replies := w.send(t.Context(), lock("first"))
				replies = append(replies, w.send(t.Context(), locks("l", 100)...)...)
				goOn()
				for _, r := range replies {
					if got := receive(t, r); got.err != nil || got.Claim.Status != claim.Active {
						t.Errorf("got %v", got)
					}
				}
				if transactions, requests := w.batches(t); transactions != c.transactions || requests != 101 {
					t.Errorf("%d requests in %d transactions, want %d", requests, transactions, c.transactions)
				}
			})
		})
	}
}

// TestBatchIsInOrder: a batch on one resource is as if its requests came one by one.
func TestBatchIsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		goOn := w.store.hold()
		w.send(t.Context(), lock("first"))
		var replies []chan reply
		for i := range 10 {
			id := fmt.Sprint("c", i)
			replies = append(replies, w.send(t.Context(), claim.Create{ID: id, Resource: "r", TTL: time.Hour})...)
		}
		ends := w.send(t.Context(), claim.Acquire{ID: "x", Resource: "r", Owner: "o", TTL: time.Hour})
		goOn()
		last := uint64(0)
		for i, r := range replies {
			got := receive(t, r)
			if want := map[bool]claim.Status{true: claim.Active, false: claim.Waiting}[i == 0]; got.err != nil || got.Claim.Status != want {
				t.Errorf("claim %d: %v", i, got)
			}
			if got.Claim.Position <= last {
				t.Errorf("position %d after %d", got.Claim.Position, last)
			}
			last = got.Claim.Position
		}
		var collision *claim.CollisionError
		if err := receive(t, ends[0]).err; !errors.As(err, &collision) || collision.Holder.ID != "c0" {
			t.Errorf("the lock behind them: %v", err)
		}
		if transactions, _ := w.batches(t); transactions != 2 {
			t.Errorf("%d transactions", transactions)
		}
	})
}

// TestSameID: two requests of one batch want the same new id for different resources. One
// of them gets it; nobody else notices.
func TestSameID(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		goOn := w.store.hold()
		w.send(t.Context(), lock("first"))
		same := w.send(t.Context(),
			claim.Create{ID: "a", Resource: "r1", TTL: time.Hour}, claim.Create{ID: "a", Resource: "r2", TTL: time.Hour})
		others := w.send(t.Context(), locks("l", 10)...)
		goOn()
		one, two := receive(t, same[0]), receive(t, same[1])
		if one.err != nil {
			one, two = two, one
		}
		if one.err != nil || !errors.Is(two.err, claim.ErrIDTaken) {
			t.Errorf("got %v and %v", one.err, two.err)
		}
		for _, r := range others {
			must(t, receive(t, r).err)
		}
	})
}

// TestCancelled: who goes away while queued is not served, and hurts nobody.
func TestCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		goOn := w.store.hold()
		ctx, cancel := context.WithCancelCause(t.Context())
		underWay := w.send(ctx, lock("under way"))
		before := w.send(t.Context(), locks("before", 3)...)
		queued := w.send(ctx, lock("queued"))
		after := w.send(t.Context(), locks("after", 3)...)
		gone := errors.New("gone")
		cancel(gone)
		for _, r := range append(underWay, queued...) {
			if err := receive(t, r).err; !errors.Is(err, gone) { // at once: the transaction is still held
				t.Errorf("got %v", err)
			}
		}
		goOn()
		for _, r := range append(before, after...) {
			must(t, receive(t, r).err)
		}
		if w.has(t, "queued") {
			t.Error("a request was carried out that was cancelled in the queue")
		}
		for i := range 3 {
			if !w.has(t, fmt.Sprint("before", i)) || !w.has(t, fmt.Sprint("after", i)) {
				t.Error("a neighbour was not carried out")
			}
		}
		w.do(t, lock("queued")) // it may be sent again
	})
}

// TestAlreadyCancelled: nothing is done for a caller that is gone.
func TestAlreadyCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Do(ctx, lock("a")); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if w.has(t, "a") {
			t.Error("it was carried out")
		}
	})
}

// bomb is a command that panics in the rules.
type bomb struct{ claim.Command }

func (bomb) Target() (resource, id string) { return "r", "" }

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
		"panics in the store": {lock("bad"), func() error { panic("boom") }, "boom"},
		"is an error to save": {lock("bad"), func() error { return broken }, "broken"},
		"conflicts for ever":  {lock("bad"), func() error { return db.ErrConflict }, "came first"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				gate := make(chan struct{})
				w.store.set(func(s *store) {
					s.transact = func(ctx context.Context, fn func(db.Tx) error) error {
						<-gate
						return s.Store.Transact(ctx, func(tx db.Tx) error { return fn(fuse{tx, c.blow}) })
					}
				})
				w.send(t.Context(), lock("first"))
				replies := w.send(t.Context(), locks("before", 20)...)
				bad := w.send(t.Context(), c.bad)
				replies = append(replies, w.send(t.Context(), locks("after", 11)...)...)
				close(gate)
				if err := receive(t, bad[0]).err; err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("the bad one: %v", err)
				}
				for _, r := range replies {
					if got := receive(t, r); got.err != nil || !w.has(t, got.Claim.ID) {
						t.Errorf("a neighbour: %v", got)
					}
				}
				if w.has(t, "bad") {
					t.Error("the bad one left something behind")
				}
				if transactions, _ := w.batches(t); transactions > 2+2*6 {
					t.Errorf("%d transactions for 32 requests, one of them bad", transactions)
				}
			})
		})
	}
}

// TestUnavailable: when the database is away all of a batch hear of it, at once.
func TestUnavailable(t *testing.T) {
	for _, away := range []error{db.ErrUnavailable, db.ErrOutcomeUnknown} {
		t.Run(away.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				goOn := w.store.hold()
				w.send(t.Context(), lock("first"))
				replies := w.send(t.Context(), locks("l", 50)...)
				w.store.set(func(s *store) {
					s.transact = func(context.Context, func(db.Tx) error) error { return fmt.Errorf("away: %w", away) }
				})
				goOn()
				for _, r := range replies {
					if got := receive(t, r); !errors.Is(got.err, away) || got.Claim.ID != "" {
						t.Errorf("got %v", got)
					}
				}
				if transactions, _ := w.batches(t); transactions != 2 {
					t.Errorf("%d transactions", transactions)
				}
				if failures := w.metric(t, "locket_commit_failures_total"); failures != 1 {
					t.Errorf("%v failures", failures)
				}
				w.store.set(func(s *store) { s.transact = nil })
				w.do(t, lock("l0"))
			})
		})
	}
}

// TestHanging: a transaction that hangs ends with its timeout, and those after it work.
func TestHanging(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var hung atomic.Int32
		w.store.set(func(s *store) {
			s.transact = func(ctx context.Context, fn func(db.Tx) error) error {
				if hung.Add(1) > 1 {
					return s.Store.Transact(ctx, fn)
				}
				<-ctx.Done()
				return fmt.Errorf("%w: %w", db.ErrUnavailable, ctx.Err())
			}
		})
		begin := time.Now()
		hangs := w.send(t.Context(), lock("hangs"))
		next := w.send(t.Context(), lock("next"))
		if err := receive(t, hangs[0]).err; !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		must(t, receive(t, next[0]).err)
		if took := time.Since(begin); took != timeout {
			t.Errorf("it took %s", took)
		}
	})
}

// TestRunTwice: a transaction may be rolled back and run again; the last run decides.
func TestRunTwice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.do(t, claim.Acquire{ID: "a", Resource: "r", Owner: "jim", TTL: time.Hour})
		again := errors.New("again")
		w.store.set(func(s *store) {
			s.transact = func(ctx context.Context, fn func(db.Tx) error) error {
				err := s.Store.Transact(ctx, func(tx db.Tx) error { return errors.Join(fn(tx), again) })
				if !errors.Is(err, again) {
					t.Errorf("the first run: %v", err)
				}
				// In between another server releases the lock.
				if err := s.Store.Transact(ctx, func(tx db.Tx) error { return change(tx, claim.Release{Resource: "r", Owner: "jim"}) }); err != nil {
					t.Error(err)
				}
				return s.Store.Transact(ctx, fn)
			}
		})
		got := w.do(t, claim.Acquire{ID: "b", Resource: "r", Owner: "joe", TTL: time.Hour})
		if got.ID != "b" || got.Owner != "joe" {
			t.Errorf("got %v", got)
		}
	})
}

// change is what another server does in a transaction of its own.
func change(tx db.Tx, cmd claim.Command) error {
	resource, id := cmd.Target()
	var resources, ids []string
	if resource != "" {
		resources = []string{resource}
	}
	if id != "" {
		ids = []string{id}
	}
	queues, err := tx.Load(resources, ids)
	if err != nil {
		return err
	}
	q := queues.Resource(resource)
	if resource == "" {
		q = queues.Claim(id)
	}
	if _, err := q.Do(cmd, queues.Now); err != nil {
		return err
	}
	return tx.Save(queues)
}

// TestStopping: the batch under way is finished, and what comes later is refused.
func TestStopping(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		goOn := w.store.hold()
		underWay := w.send(t.Context(), lock("under way"))
		queued := w.send(t.Context(), locks("queued", 5)...)
		ended := make(chan struct{})
		go func() { stop(t, w.process); close(ended) }()
		synctest.Wait()
		goOn()
		<-ended
		must(t, receive(t, underWay[0]).err)
		for i, r := range queued {
			err := receive(t, r).err
			if err != nil && !errors.Is(err, committer.ErrStopping) {
				t.Errorf("queued: %v", err)
			}
			if w.has(t, fmt.Sprint("queued", i)) != (err == nil) {
				t.Errorf("answered %v, and the store does not agree", err)
			}
		}
		if _, err := w.Do(t.Context(), lock("late")); !errors.Is(err, committer.ErrStopping) {
			t.Errorf("late: %v", err)
		}
	})
}

// TestStopRace: nobody hangs, whatever the moment of the end, and what was acknowledged is
// there.
func TestStopRace(t *testing.T) {
	for round := range 5 {
		w := start(t, 8)
		var (
			callers      sync.WaitGroup
			acknowledged sync.Map
		)
		for i := range 20 {
			callers.Go(func() {
				for n := 0; ; n++ {
					id := fmt.Sprint(i, "-", n)
					_, err := w.Do(t.Context(), lock(id))
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
		time.Sleep(time.Duration(round) * 5 * time.Millisecond)
		stop(t, w.process)
		callers.Wait()
		acknowledged.Range(func(id, _ any) bool {
			if !w.has(t, id.(string)) {
				t.Errorf("%s was acknowledged and is not there", id)
			}
			return true
		})
	}
}

// TestShortOutage: time in which commits fail counts against no lease, also when it is shorter
// than a beat may be late.
func TestShortOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.do(t, lock("before"))
		begin, err := w.store.Now(t.Context())
		must(t, err)
		w.store.set(func(s *store) {
			s.transact = func(context.Context, func(db.Tx) error) error { return db.ErrUnavailable }
		})
		const outage = 200 * time.Millisecond
		if _, err := w.Do(t.Context(), lock("meanwhile")); !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		time.Sleep(outage)
		w.store.set(func(s *store) { s.transact = nil })
		w.do(t, lock("after"))
		end, err := w.store.Now(t.Context())
		must(t, err)
		if wall, lease := end.Wall.Sub(begin.Wall), end.Lease.Sub(begin.Lease); wall < outage || lease > outage/2 {
			t.Errorf("lease time moved by %s in an outage of %s", lease, wall)
		}
	})
}

// TestStillAway: while not even beats succeed, requests are refused without a transaction that
// would have to run into its timeout as well.
func TestStillAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		transactions := 0
		w.store.set(func(s *store) {
			s.transact = func(context.Context, func(db.Tx) error) error {
				transactions++
				return db.ErrUnavailable
			}
			s.resume = func() error { return db.ErrUnavailable }
		})
		for range 3 {
			if _, err := w.Do(t.Context(), lock("l")); !errors.Is(err, db.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		}
		if transactions != 1 {
			t.Errorf("%d transactions", transactions)
		}
		w.store.set(func(s *store) { s.transact, s.resume = nil, nil })
		w.do(t, lock("l"))
	})
}
