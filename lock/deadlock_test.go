package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestDeadlocks: the servers abort a session's last request in a deadlock of sessions. For clients and mutexes they
// abort only with WithAllowDeadlock(false); by default these keep waiting, since other goroutines may end the wait.
func TestDeadlocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := w.sessions(2)
		a, b := all[0], all[1]
		for _, ask := range []struct {
			session  *lock.Session
			resource string
		}{{a, "x"}, {b, "y"}, {a, "y"}, {b, "x"}} {
			must(t, second(ask.session.Lock(t.Context(), ask.resource)))
			time.Sleep(time.Millisecond)
		}
		heard := make(chan lock.Status, 10)
		defer b.Listen(func(s lock.Status) { heard <- s })()
		time.Sleep(2 * time.Second)
		told := <-heard
		aborted := map[string]error{
			"session": told.Cause,
			"status":  b.Status("x").Cause,
			"mutex":   lock.NewMutex(b, "x", lock.WithAllowDeadlock(false)).Lock(t.Context()),
		}
		for name, err := range aborted {
			var deadlock *models.DeadlockError
			if !errors.As(err, &deadlock) || len(deadlock.Members) != 2 || deadlock.Members[0].Resource != "x" || deadlock.Members[1].Resource != "y" || models.ReasonOf(err) != models.ReasonDeadlock {
				t.Errorf("%s: %v, %+v", name, err, deadlock)
			}
		}
		if told.Previous != lock.Waiting || told.Current != lock.None {
			t.Errorf("it was told %+v", told)
		}
		if got, err := b.Lock(t.Context(), "x", lock.WithAllowDeadlock(true)); err != nil || got.Current != lock.Waiting {
			t.Errorf("%+v, %v", got, err)
		}
		time.Sleep(time.Minute)
		if x, y := b.Status("x").Current, a.Status("y").Current; x != lock.Waiting || y != lock.Waiting {
			t.Errorf("a deadlock that is allowed: %v, %v", x, y)
		}
		must(t, errors.Join(a.Close(t.Context()), b.Close(t.Context())))

		c, d := w.client(), w.client()
		x, err := c.Acquire(t.Context(), "x")
		must(t, err)
		must(t, second(d.Acquire(t.Context(), "y")))
		first := acquiring(t.Context(), c, "y")
		waits(t, first)
		var deadlock *models.DeadlockError
		if _, err := d.Acquire(t.Context(), "x", lock.WithAllowDeadlock(false)); !errors.As(err, &deadlock) || len(deadlock.Members) != 2 {
			t.Error(err)
		}
		next := acquiring(t.Context(), d, "x")
		waits(t, next)
		must(t, x.Release(t.Context())) // by a goroutine that does not wait
		comes(t, time.Second, next)
		must(t, d.Close())
		comes(t, time.Second, first)
	})
}

// TestDeadlockAndOthersOfTheClient: goroutines of one client wait for one claim, which is aborted to end a deadlock.
// Goroutines that allow no deadlock get an error; the others ask again.
func TestDeadlockAndOthersOfTheClient(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, d := w.client(), w.client()
		x, err := c.Acquire(t.Context(), "x")
		must(t, err)
		must(t, second(d.Acquire(t.Context(), "y")))
		other := acquiring(t.Context(), c, "y")
		waits(t, other)
		refused := acquiring(t.Context(), d, "x", lock.WithAllowDeadlock(false))
		time.Sleep(100 * time.Millisecond)
		stays, joins := acquiring(t.Context(), d, "x"), acquiring(t.Context(), d, "x", lock.WithAllowDeadlock(false))
		for _, done := range []<-chan outcome{refused, joins} {
			var deadlock *models.DeadlockError
			if got := <-done; !errors.As(got.err, &deadlock) || len(deadlock.Members) != 2 {
				t.Errorf("%v, %v", got.held, got.err)
			}
		}
		waits(t, stays)
		must(t, x.Release(t.Context()))
		must(t, comes(t, time.Second, stays).Release(t.Context()))
		must(t, d.Close())
		comes(t, time.Second, other)
	})
}

// TestNoDeadlockStays: sessions request two of three locks at once, so that either may wait first, and release their
// locks when one request is aborted. Nobody waits for long.
func TestNoDeadlockStays(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const rounds, most = 60, time.Minute
		var all sync.WaitGroup
		var aborted atomic.Int64
		for n, s := range w.sessions(4) {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			all.Go(func() {
				for round := range rounds {
					begin := time.Now()
					var asked sync.WaitGroup
					names := []string{"x", "y", "z"}
					random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
					for _, name := range names[:2] {
						pause := time.Duration(random.IntN(40)) * time.Millisecond
						asked.Go(func() {
							time.Sleep(pause)
							if err := second(s.Lock(t.Context(), name)); err != nil {
								t.Errorf("session %d, round %d: %v", n, round, err)
							}
						})
					}
					asked.Wait()
					states := func() []lock.State { return []lock.State{s.Status(names[0]).Current, s.Status(names[1]).Current} }
					for slices.Contains(states(), lock.Waiting) && !slices.Contains(states(), lock.None) {
						if time.Since(begin) > most {
							t.Errorf("session %d, round %d: waits for ever: %v", n, round, states())
							return
						}
						time.Sleep(10 * time.Millisecond)
					}
					for _, name := range names[:2] {
						if models.ReasonOf(s.Status(name).Cause) == models.ReasonDeadlock {
							aborted.Add(1)
						}
					}
					time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
					if err := s.UnlockAll(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if aborted.Load() == 0 {
			t.Error("there was no deadlock")
		}
	})
}

// TestDeadlocksOfOneClient: a goroutine that allows no deadlock joins its client's waiting claim, whether or not the
// earlier goroutines allow deadlocks, and keeps its place when they leave. It asks the servers when it is the first
// and its client no longer waits.
func TestDeadlocksOfOneClient(t *testing.T) {
	for name, allows := range map[string]bool{"behind one that allows": true, "before one that allows": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c, d := w.client(), w.client()
				x, err := c.Acquire(t.Context(), "x")
				must(t, err)
				y, err := d.Acquire(t.Context(), "y")
				must(t, err)
				var other, first <-chan outcome
				ctx, leave := context.WithCancel(t.Context())
				steps := []func(){
					func() { other = acquiring(t.Context(), d, "x"); waits(t, other) },
					func() { first = acquiring(ctx, c, "y", lock.WithAllowDeadlock(allows)); waits(t, first) }, // closes the circle
				}
				if !allows { // it waits before there is a circle
					slices.Reverse(steps)
				}
				for _, step := range steps {
					step()
				}
				next := acquiring(t.Context(), c, "y", lock.WithAllowDeadlock(!allows))
				waits(t, next)
				leave()
				if got := <-first; !errors.Is(got.err, context.Canceled) {
					t.Errorf("who left got %v", got.err)
				}
				waits(t, next)
				behind := acquiring(t.Context(), w.client(), "y")
				waits(t, behind)
				must(t, y.Release(t.Context()))
				must(t, comes(t, time.Second, next).Release(t.Context()))
				comes(t, time.Second, behind)
				must(t, x.Release(t.Context()))
				comes(t, time.Second, other)
			})
		})
	}
	t.Run("behind one that held", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			c, d := w.client(), w.client()
			must(t, second(c.Acquire(t.Context(), "x")))
			y, err := c.Acquire(t.Context(), "y")
			must(t, err)
			others := []<-chan outcome{acquiring(t.Context(), d, "x"), acquiring(t.Context(), d, "y")}
			waits(t, others[0])
			next := acquiring(t.Context(), c, "y", lock.WithAllowDeadlock(false))
			waits(t, next)
			must(t, y.Release(t.Context()))
			comes(t, time.Second, others[1])
			var deadlock *models.DeadlockError
			select {
			case got := <-next:
				if !errors.As(got.err, &deadlock) || len(deadlock.Members) != 2 {
					t.Error(got.err)
				}
			case <-time.After(2 * time.Second):
				t.Error("it waits in a deadlock")
			}
			must(t, c.Close())
			comes(t, time.Second, others[0])
		})
	})
}
