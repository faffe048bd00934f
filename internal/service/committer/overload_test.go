package committer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
)

// bounded runs a test with a committer that lets few requests wait.
func bounded(t *testing.T, maxBatch, maxPending int, test func(t *testing.T, w *committertest.World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := committertest.NewBounded(t, maxBatch, maxPending)
		committertest.Run(t, w.Committer)
		test(t, w)
	})
}

// slowRegister is a store that takes its time to register a name.
type slowRegister struct {
	*committertest.Store
	goOn chan struct{}
}

func (s *slowRegister) Register(ctx context.Context, name string) error {
	<-s.goOn
	return s.Store.Register(ctx, name)
}

// TestRegisterBesideRequests: registering a new name for sessions is slow, as when another client locks the table. It
// delays no request and no beat.
func TestRegisterBesideRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		store := &slowRegister{w.Store, make(chan struct{})}
		c := committer.New(store, committer.Config{
			Timeout: committertest.Timeout, Log: w.Log, Metrics: committer.NewMetrics(prometheus.NewRegistry()),
		})
		committertest.Run(t, c)
		_, err := c.Do(t.Context(), committertest.Lock("a"))
		committertest.Check(t, err)
		registered := make(chan error, 1)
		go func() { registered <- c.Register(t.Context(), "here") }()
		time.Sleep(5 * time.Second)
		if passed := c.LeaseTime(); passed < 4*time.Second {
			t.Errorf("lease time has passed for %s", passed)
		}
		_, err = c.Do(t.Context(), committertest.Lock("b"))
		committertest.Check(t, err)
		close(store.goOn)
		committertest.Check(t, <-registered)
	})
}

// TestRequestsBesideSlowBeats: where a beat takes longer than its interval, so that the next one is always due, requests wait for one beat, and not for many.
func TestRequestsBesideSlowBeats(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		const beat = 3 * db.BeatInterval / 2
		w.Must(t, committertest.Lock("held")) // needs beats
		w.Store.Set(func(s *committertest.Store) { s.OnBeat = func() error { time.Sleep(beat); return nil } })
		for n := range 20 {
			time.Sleep(beat / 3)
			begin := time.Now()
			w.Must(t, committertest.Lock(fmt.Sprint(n)))
			if took := time.Since(begin); took > 2*beat {
				t.Errorf("request %d took %s", n, took)
			}
		}
		w.Store.Set(func(s *committertest.Store) { s.OnBeat = nil })
	})
}

// creates are claims of new resources.
func creates(prefix string, n, bytes int) (cmds []claim.Command) {
	for i := range n {
		id := fmt.Sprint(prefix, i)
		cmds = append(cmds, claim.Create{ID: id, Resource: id, TTL: time.Hour, UserData: make([]byte, bytes)})
	}
	return cmds
}

// TestOverload: new work is refused at half of the bound, renewals and ends only at the bound. All that was accepted
// is carried out.
func TestOverload(t *testing.T) {
	bounded(t, 0, 100, func(t *testing.T, w *committertest.World) {
		held := w.Must(t, claim.Acquire{ID: "held", Resource: "held", Owner: "cf", TTL: time.Hour})
		w.Must(t, claim.Create{ID: "claimed", Resource: "claimed", TTL: time.Hour})
		w.Must(t, claim.Create{ID: "ends", Resource: "ends", TTL: time.Hour})
		goOn := w.Store.Hold()
		w.Send(t.Context(), committertest.Lock("under way"))
		accepted := w.Send(t.Context(), creates("new", 50, 0)...)
		for _, cmd := range append(creates("refused", 2, 0), committertest.Lock("refused")) {
			if _, err := w.Do(t.Context(), cmd); !errors.Is(err, committer.ErrOverloaded) {
				t.Errorf("%T: %v", cmd, err)
			}
		}
		keeps := []claim.Command{
			claim.Renew{ID: "claimed", TTL: time.Minute},
			claim.Acquire{ID: "-", Resource: "held", Owner: "cf", TTL: time.Minute, Token: held.Token},
			claim.Acquire{ID: "-", Resource: "held", Owner: "cf", TTL: time.Minute}, // as Cloud Foundry's clients renew
			claim.Expire{Resources: []string{"held"}},
		}
		for len(keeps) < 49 {
			keeps = append(keeps, claim.Renew{ID: "claimed", TTL: time.Minute})
		}
		accepted = append(accepted, w.Send(t.Context(), append(keeps, claim.End{ID: "ends"})...)...)
		if _, err := w.Do(t.Context(), claim.Release{Resource: "held", Owner: "cf"}); !errors.Is(err, committer.ErrOverloaded) {
			t.Errorf("beyond the bound: %v", err)
		}
		if n := w.Metric(t, "locket_queue_requests"); n != 100 {
			t.Errorf("%v requests wait", n)
		}
		if n := w.Metric(t, "locket_refused_requests_total"); n != 4 {
			t.Errorf("%v requests were refused", n)
		}
		goOn()
		for _, r := range accepted {
			committertest.Check(t, committertest.Receive(t, r).Err)
		}
		w.Must(t, committertest.Lock("refused")) // there is room again
	})
}

// TestOverloadInBytes: large requests fill the queue as well.
func TestOverloadInBytes(t *testing.T) {
	bounded(t, 0, 0, func(t *testing.T, w *committertest.World) {
		goOn := w.Store.Hold()
		w.Send(t.Context(), committertest.Lock("under way"))
		accepted := w.Send(t.Context(), creates("large", 500, 64<<10)...)
		refused := 0
		for _, r := range w.Send(t.Context(), creates("more", 20, 64<<10)...) {
			select {
			case got := <-r:
				if !errors.Is(got.Err, committer.ErrOverloaded) {
					t.Errorf("got %v", got.Err)
				}
				refused++
			default:
			}
		}
		if refused < 8 || refused > 19 {
			t.Errorf("%d of 20 were refused", refused)
		}
		goOn()
		for _, r := range accepted {
			committertest.Check(t, committertest.Receive(t, r).Err)
		}
		w.Must(t, creates("again", 1, 64<<10)[0])
	})
}

// TestHungDatabase: all requests that wait are answered at the timeout, not a batch at each.
func TestHungDatabase(t *testing.T) {
	bounded(t, 100, 0, func(t *testing.T, w *committertest.World) {
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, _ func(db.Tx) error) error {
				<-ctx.Done()
				return fmt.Errorf("%w: %w", db.ErrUnavailable, ctx.Err())
			}
		})
		begin := time.Now()
		replies := w.Send(t.Context(), creates("c", 1000, 0)...)
		time.Sleep(committertest.Timeout * 6 / 10)
		late := w.Send(t.Context(), creates("late", 300, 0)...)
		for _, r := range replies {
			if err := committertest.Receive(t, r).Err; !errors.Is(err, db.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		}
		if took := time.Since(begin); took > committertest.Timeout+committertest.Timeout/10 {
			t.Errorf("it took %s", took)
		}
		for _, r := range late {
			if err := committertest.Receive(t, r).Err; !errors.Is(err, db.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		}
		if took := time.Since(begin); took > committertest.Timeout*17/10 {
			t.Errorf("those that came later had to wait for %s", took-committertest.Timeout*6/10)
		}
	})
}

// TestRenewalsFirst: when not all requests fit into a transaction, renewals and releases go
// before new work, and both keep their order.
func TestRenewalsFirst(t *testing.T) {
	bounded(t, 10, 0, func(t *testing.T, w *committertest.World) {
		for _, cmd := range creates("held", 10, 0) {
			w.Must(t, cmd)
		}
		var mu sync.Mutex
		var loads [][]string
		goOn := w.Store.Hold()
		w.Send(t.Context(), committertest.Lock("under way"))
		var replies []chan committertest.Reply
		for _, cmd := range creates("new", 15, 0) {
			replies = append(replies, w.Send(t.Context(), cmd)...)
		}
		for i := range 10 {
			replies = append(replies, w.Send(t.Context(), claim.Renew{ID: fmt.Sprint("held", i), TTL: time.Hour})...)
		}
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				return s.Update(ctx, func(tx db.Tx) error {
					return fn(loader{tx, func(resources, ids []string) {
						mu.Lock()
						defer mu.Unlock()
						loads = append(loads, slices.Concat(resources, ids))
					}})
				})
			}
		})
		goOn()
		for _, r := range replies {
			committertest.Check(t, committertest.Receive(t, r).Err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(loads) != 3 || !slices.Contains(loads[0], "held9") || slices.Contains(loads[0], "new0") || !slices.Contains(loads[1], "new0") || !slices.Contains(loads[2], "new14") {
			t.Errorf("the transactions loaded %q", loads)
		}
	})
}

// loader is a transaction that reports what it loads.
type loader struct {
	db.Tx
	report func(resources, ids []string)
}

func (l loader) Load(wanted db.Wanted) (*claim.Queues, error) {
	l.report(wanted.Resources, wanted.Claims)
	return l.Tx.Load(wanted)
}

// TestGoneCallersLoadNothing: the rows of a request whose caller has left are not even locked.
func TestGoneCallersLoadNothing(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		goOn := w.Store.Hold()
		ctx, cancel := context.WithCancel(t.Context())
		w.Send(t.Context(), committertest.Lock("under way"))
		w.Send(ctx, committertest.Lock("gone"))
		stays := w.Send(t.Context(), committertest.Lock("stays"))
		cancel()
		synctest.Wait()
		var loaded []string
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				return s.Update(ctx, func(tx db.Tx) error {
					return fn(loader{tx, func(resources, _ []string) { loaded = resources }})
				})
			}
		})
		goOn()
		committertest.Check(t, committertest.Receive(t, stays[0]).Err)
		if !slices.Equal(loaded, []string{"of stays"}) {
			t.Errorf("loaded %q", loaded)
		}
	})
}

// TestSlowCommits: leases run out, later, although every commit takes longer than beats may be
// apart.
func TestSlowCommits(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		slowly(t, w, func() {
			for _, r := range w.Send(t.Context(), locks("l", 3)...) {
				committertest.Check(t, (<-r).Err)
			}
		})
	})
}

// slowly makes every transaction take longer than beats may be apart, and sends requests for two minutes; one minute
// must count as lease time.
func slowly(t *testing.T, w *committertest.World, send func()) {
	t.Helper()
	begin, err := w.Store.Now(t.Context())
	committertest.Check(t, err)
	w.Store.Set(func(s *committertest.Store) {
		s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
			time.Sleep(2 * db.MaxSilence)
			return s.Update(ctx, fn)
		}
	})
	for start := time.Now(); time.Since(start) < 2*time.Minute; {
		send()
	}
	end, err := w.Store.Now(t.Context())
	committertest.Check(t, err)
	if wall, lease := end.Wall.Sub(begin.Wall), end.Lease.Sub(begin.Lease); lease < wall/2-time.Second || lease > wall/2+time.Second {
		t.Errorf("lease time moved by %s in %s", lease, wall)
	}
}

// TestSlowRefusals: leases run out, if late, although refused requests are always under way, each for longer than
// beats may be apart, so that nothing is written.
func TestSlowRefusals(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Acquire{ID: "held", Resource: "r", Owner: "holder", TTL: time.Hour})
		slowly(t, w, func() {
			_, err := w.Do(t.Context(), claim.Acquire{ID: "refused", Resource: "r", Owner: "other", TTL: time.Hour})
			if collision := (*claim.CollisionError)(nil); !errors.As(err, &collision) {
				t.Fatalf("got %v", err)
			}
		})
	})
}

// TestManySharedWaiters: a long run of shared claims is granted in several transactions, one
// right after the other, and no request has to come for it.
func TestManySharedWaiters(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		const readers = 2*claim.MaxGrants + 500
		w.Must(t, claim.Create{ID: "writer", Resource: "r", TTL: time.Hour})
		var waiting []claim.Command
		for i := range readers {
			waiting = append(waiting, claim.Create{ID: fmt.Sprint("reader ", i), Resource: "r", Units: claim.Shared, TTL: time.Hour})
		}
		for _, r := range w.Send(t.Context(), waiting...) {
			committertest.Check(t, (<-r).Err)
		}
		before, _ := w.Batches(t)
		w.Must(t, claim.End{ID: "writer"})
		synctest.Wait()
		counts, err := w.Store.Census(t.Context(), 0)
		committertest.Check(t, err)
		if counts.Active != readers || counts.Waiting != 0 {
			t.Errorf("%+v of %d readers", counts, readers)
		}
		if after, _ := w.Batches(t); after-before != 3 {
			t.Errorf("%d transactions", after-before)
		}
	})
}
