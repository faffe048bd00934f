package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestAcquire: a lock is held from Acquire to Release. Release ends that hold and no later one, and may be repeated.
func TestAcquire(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.client(lock.WithOwner("a")), w.client(lock.WithOwner("b"))
		held, err := a.Acquire(t.Context(), "nightly", lock.WithValue("of a"))
		must(t, err)
		got, err := w.own().Fetch(t.Context(), &models.FetchRequest{Key: "nightly"})
		must(t, err)
		if got.GetToken() != held.Token() || got.GetResource().GetOwner() != "a" || got.GetResource().GetValue() != "of a" || held.Err() != nil || held.Context().Err() != nil {
			t.Errorf("%v; %d, %v", got, held.Token(), held.Err())
		}
		for name, c := range map[string]*lock.Client{"a": a, "b": b} { // also from the same client
			if _, err := c.TryAcquire(t.Context(), "nightly"); !errors.Is(err, models.ErrLockCollision) || !strings.Contains(err.Error(), `"a"`) {
				t.Errorf("%s: %v", name, err)
			}
		}
		time.Sleep(2 * time.Minute)
		must(t, held.Err())
		if left := time.Until(held.Deadline()); left <= 0 || left > lock.DefaultTTL {
			t.Errorf("it is held for %v yet", left)
		}
		waiting := acquiring(t.Context(), b, "nightly")
		waits(t, waiting)
		must(t, held.Release(t.Context()))
		next := comes(t, time.Second, waiting)
		must(t, held.Release(t.Context())) // does not release the second hold
		if !errors.Is(held.Err(), lock.ErrReleased) || !errors.Is(context.Cause(held.Context()), lock.ErrReleased) || next.Err() != nil || next.Token() <= held.Token() {
			t.Errorf("%v, %v; %d after %d", held.Err(), next.Err(), next.Token(), held.Token())
		}
		<-held.Done()
		must(t, b.Close())
		if err := next.Err(); !errors.Is(err, lock.ErrLost) || !errors.Is(err, lock.ErrClosed) {
			t.Error(err)
		}
		if _, err := b.Acquire(t.Context(), "nightly"); !errors.Is(err, lock.ErrClosed) {
			t.Error(err)
		}
		if _, err := w.own().Fetch(t.Context(), &models.FetchRequest{Key: "nightly"}); !errors.Is(err, models.ErrResourceNotFound) {
			t.Errorf("after the end of its client: %v", err)
		}
		must(t, errors.Join(a.Close(), a.Close()))
	})
}

// TestOneSession: a client opens one session, when it first needs it, and another session for another TTL.
func TestOneSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.client(lock.WithTTL(10 * time.Second))
		count := func(want int) {
			t.Helper()
			list, err := w.own().ListSessions(t.Context(), &models.ListSessionsRequest{})
			must(t, err)
			if len(list.GetSessions()) != want {
				t.Errorf("%d sessions, want %d: %v", len(list.GetSessions()), want, list)
			}
		}
		count(0)
		for i, options := range [][]lock.AcquireOption{nil, {lock.WithShared()}, {lock.WithTTL(10 * time.Second)}, {lock.WithTTL(time.Minute)}} {
			must(t, second(c.Acquire(t.Context(), fmt.Sprint(i), options...)))
		}
		count(2)
		if _, err := c.Acquire(t.Context(), "k", lock.WithTTL(time.Millisecond)); err == nil {
			t.Error("a TTL of 1 ms")
		}
		must(t, c.Close())
		count(0)
	})
}

// TestDo: the function runs while the lock is held. Its context ends with the lock, and Do returns the loss in its error.
func TestDo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.client()
		own := errors.New("of its own")
		err := c.Do(t.Context(), "k", func(_ context.Context, token uint64) error {
			if _, granted := w.holder("k"); granted != token {
				t.Errorf("%d, and the server says %d", token, granted)
			}
			return own
		})
		if !errors.Is(err, own) || errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		err = c.Do(t.Context(), "k", func(ctx context.Context, _ uint64) error {
			w.resetSessions()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = c.Do(ctx, "k", func(ctx context.Context, _ uint64) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = c.Do(t.Context(), "k", func(context.Context, uint64) error { panic("oh") })
		}()
		held, err := c.TryAcquire(t.Context(), "k") // it was released each time
		must(t, err)
		must(t, held.Release(t.Context()))
	})
}

// TestClientGoesOn: a client that has lost its session holds nothing, and acquires by a new session. An Acquire that waits
// continues to wait.
func TestClientGoesOn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, other := w.client(), w.client()
		held, err := c.Acquire(t.Context(), "mine")
		must(t, err)
		theirs, err := other.Acquire(t.Context(), "theirs")
		must(t, err)
		before, err := c.Session()
		must(t, err)
		waiting := acquiring(t.Context(), c, "theirs")
		waits(t, waiting)
		keep, err := other.Session()
		must(t, err)
		w.resetSessions(keep.ID())
		<-held.Done()
		if !errors.Is(before.Err(), lock.ErrSessionEnded) && !errors.Is(held.Err(), lock.ErrLost) {
			t.Errorf("%v, %v", before.Err(), held.Err())
		}
		waits(t, waiting)
		must(t, theirs.Release(t.Context()))
		comes(t, time.Second, waiting)
		after, err := c.Session()
		must(t, err)
		if after.ID() == before.ID() {
			t.Error("the session is the same")
		}
	})
}

// TestResignsBeforeOthersHold: clients are cut off from the server at random times. Two of them never trust the same lock at the
// same time: a client has noticed its loss before the lock is granted to another one.
func TestResignsBeforeOthersHold(t *testing.T) { resignsBeforeOthersHold(t, 3) }

func resignsBeforeOthersHold(t *testing.T, seeds uint64) {
	t.Helper()
	var lost, got int
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				random := rand.New(rand.NewPCG(seed, 1))
				const ttl = 5 * time.Second
				var mu sync.Mutex
				holders := make(map[*lock.Hold]bool)
				var last uint64
				ctx, stop := context.WithCancel(t.Context())
				var working sync.WaitGroup
				networks := make([]clients, 3)
				for i := range networks {
					networks[i] = w.beside()
					c := networks[i].client(lock.WithTTL(ttl))
					pauses := rand.New(rand.NewPCG(seed, uint64(i)+2))
					working.Go(func() {
						for ctx.Err() == nil {
							held, err := c.Acquire(ctx, "k")
							if err != nil {
								continue
							}
							mu.Lock()
							for other := range holders {
								if other.Err() == nil {
									t.Errorf("a client is granted with %d, and another one relies on %d", held.Token(), other.Token())
								}
							}
							if held.Token() <= last {
								t.Errorf("the token %d after %d", held.Token(), last)
							}
							last, holders[held] = held.Token(), true
							got++
							mu.Unlock()
							select {
							case <-held.Done():
							case <-time.After(time.Duration(pauses.Int64N(int64(2 * ttl)))):
							case <-ctx.Done():
							}
							mu.Lock()
							delete(holders, held)
							if errors.Is(held.Err(), lock.ErrLost) {
								lost++
							}
							mu.Unlock()
							_ = held.Release(t.Context())
						}
					})
				}
				for range 40 {
					time.Sleep(time.Duration(random.Int64N(int64(ttl))))
					networks[random.IntN(len(networks))].Set(locktest.State(random.IntN(3)))
				}
				for _, n := range networks {
					n.Set(locktest.Open)
				}
				stop()
				working.Wait()
			})
		})
	}
	t.Logf("%d grants, %d losses", got, lost)
	if got < 20 || lost < 2 {
		t.Errorf("%d grants, %d losses", got, lost)
	}
}

// TestCutOffWaits: without a server, Acquire waits until its context ends or a server can be reached. Close of a client that is cut
// off returns after the release timeout.
func TestCutOffWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Set(locktest.Cut)
		c, err := lock.NewClient(anyAddress, w.option())
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := c.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		waiting := acquiring(t.Context(), c, "k")
		time.Sleep(time.Minute)
		w.Set(locktest.Open)
		comes(t, 2*time.Second, waiting)
		w.Set(locktest.Cut)
		started := time.Now()
		if err := c.Close(); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 6*time.Second {
			t.Errorf("closed after %v: %v", time.Since(started), err)
		}
		w.Set(locktest.Open)
	})
}

// TestCommandTimeout: a command that is not answered ends with ErrTimeout. A mutex cancels its request.
func TestCommandTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, other := w.session(lock.WithCommandTimeout(time.Second)), w.beside().session()
		must(t, second(other.Lock(t.Context(), "taken")))
		m := lock.NewMutex(s, "k")
		must(t, m.Lock(t.Context()))
		must(t, m.Unlock())
		w.Set(locktest.Silent)
		for name, err := range map[string]error{"lock": m.Lock(t.Context()), "session": second(s.Lock(t.Context(), "other"))} {
			if !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("%s: %v", name, err)
			}
		}
		started := time.Now()
		_ = m.Lock(t.Context())
		if took := time.Since(started); took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		w.Set(locktest.Open)
		stands(t, s, "nothing", lock.None)
		time.Sleep(10 * time.Second)
		stands(t, s, "k", lock.None)
		stands(t, s, "other", lock.Holding)
		taken := harness.Later(func() error { return lock.NewMutex(s, "taken").Lock(t.Context()) }) // the timeout does not bound the wait in the queue
		time.Sleep(10 * time.Second)
		synctest.Wait()
		must(t, second(other.Unlock(t.Context(), "taken")))
		must(t, <-taken)
	})
}
