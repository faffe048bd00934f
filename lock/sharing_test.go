package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// acquiring acquires in another goroutine, and returns a channel for the outcome.
func acquiring(ctx context.Context, c *lock.Client, key string, options ...lock.AcquireOption) <-chan outcome {
	return holding(func() (*lock.Hold, error) { return c.Acquire(ctx, key, options...) })
}

// holding calls a function in another goroutine, and returns a channel for the outcome.
func holding(acquire func() (*lock.Hold, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		held, err := acquire()
		done <- outcome{held, err}
	}()
	return done
}

type outcome struct {
	held *lock.Hold
	err  error
}

// comes returns the hold of an outcome. It fails the test if there is none within a time.
func comes(t *testing.T, within time.Duration, done <-chan outcome) *lock.Hold {
	t.Helper()
	select {
	case got := <-done:
		must(t, got.err)
		return got.held
	case <-time.After(within):
		t.Fatalf("not held after %v", within)
		return nil
	}
}

// waits fails the test if there is an outcome when everything has settled.
func waits(t *testing.T, done <-chan outcome) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	if len(done) > 0 {
		t.Fatalf("it does not wait: %v", (<-done).err)
	}
}

// TestLateReaders: a reader that comes while a writer waits gets the lock when the writer has given up, while the
// readers before it still hold; even if the stream of its session was down.
func TestLateReaders(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		readers, other := w.client(lock.WithTTL(time.Minute)), w.beside().client()
		first, err := readers.Acquire(t.Context(), "k", lock.WithShared())
		must(t, err)

		interrupted, giveUp := context.WithCancel(t.Context())
		writer := acquiring(interrupted, other, "k")
		waits(t, writer)
		late, later := acquiring(t.Context(), readers, "k", lock.WithShared()), acquiring(t.Context(), readers, "k", lock.WithShared())
		waits(t, late)
		if _, err := readers.TryAcquire(t.Context(), "k", lock.WithShared()); !errors.Is(err, models.ErrLockCollision) {
			t.Errorf("a try beside a writer that waits: %v", err)
		}
		giveUp()
		second, third := comes(t, time.Second, late), comes(t, time.Second, later)
		if (<-writer).err == nil || first.Err() != nil || second.Token() != first.Token() || third.Token() != first.Token() {
			t.Errorf("%v; tokens %d, %d, %d", first.Err(), first.Token(), second.Token(), third.Token())
		}

		interrupted, giveUp = context.WithCancel(t.Context())
		writer = acquiring(interrupted, other, "k")
		waits(t, writer)
		w.Set(locktest.Cut)
		time.Sleep(time.Second)
		late = acquiring(t.Context(), readers, "k", lock.WithShared())
		tried := holding(func() (*lock.Hold, error) { return readers.TryAcquire(t.Context(), "k", lock.WithShared()) })
		waits(t, late)
		w.Set(locktest.Open)
		select {
		case got := <-tried:
			if !errors.Is(got.err, models.ErrLockCollision) {
				t.Error(got.err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("a try has no answer")
		}
		waits(t, late)
		giveUp()
		comes(t, time.Second, late)
		<-writer
	})
}

// TestTriesTogether: of readers of one session that try at the same time, all or none succeed.
func TestTriesTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, other := w.session(), w.session()
		m := lock.NewRWMutex(s, "k")
		writer := lock.NewRWMutex(other, "k")
		try := func(name string, want int) {
			t.Helper()
			results := make(chan bool, 20)
			for range cap(results) {
				go func() {
					had, err := m.TryRLock(t.Context())
					must(t, err)
					results <- had
				}()
			}
			got := 0
			for range cap(results) {
				if <-results {
					got++
				}
			}
			if got != want {
				t.Errorf("%s: %d read, want %d", name, got, want)
			}
			for range got {
				must(t, m.RUnlock())
			}
		}
		try("of a free mutex", 20)
		must(t, m.RLock(t.Context()))
		try("beside a reader", 20)
		waiting := harness.Later(func() error { return writer.Lock(t.Context()) })
		stands(t, other, "k", lock.Waiting)
		try("beside a writer that waits", 0)
		must(t, m.RUnlock())
		must(t, <-waiting)
		try("beside a writer", 0)
		must(t, writer.Unlock())
		try("after the writer", 20)
		must(t, m.Lock(t.Context()))
		try("beside a writer of the session", 0)
		must(t, m.Unlock())
	})
}

// shown returns value, type and user data of the claim that holds "k".
func (w *world) shown() string {
	w.t.Helper()
	got := w.holding("k")[0]
	return fmt.Sprintf("%q %s %q", got.GetValue(), got.GetTypeCode(), got.GetUserData())
}

// TestSharedBySame: goroutines of one client share a claim only if their options are equal. Others wait for a claim of their own, with
// another token.
func TestSharedBySame(t *testing.T) {
	for name, options := range map[string][2][]lock.AcquireOption{
		"value": {{lock.WithValue("one")}, {lock.WithValue("two")}},
		"type":  {{lock.WithValue("v")}, {lock.WithPresence("v")}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c, holder := w.client(), w.client()
				held, err := holder.Acquire(t.Context(), "k")
				must(t, err)
				all := []<-chan outcome{acquiring(t.Context(), c, "k", options[0]...)}
				waits(t, all[0])
				for range 2 {
					all = append(all, acquiring(t.Context(), c, "k", options[1]...))
					waits(t, all[len(all)-1])
				}
				must(t, held.Release(t.Context()))
				first := comes(t, time.Second, all[0])
				one := w.shown()
				waits(t, all[1])
				must(t, first.Release(t.Context()))
				second := comes(t, time.Second, all[1])
				if two := w.shown(); two == one || second.Token() <= first.Token() {
					t.Errorf("claims %q and %q, tokens %d and %d", one, two, first.Token(), second.Token())
				}
				must(t, second.Release(t.Context()))
				if third := comes(t, time.Second, all[2]); third.Token() != second.Token() {
					t.Errorf("who asks for the same has token %d, and not %d", third.Token(), second.Token())
				}
			})
		})
	}
}

// TestReadersThatDiffer: readers of one client with different options hold together, each by a claim of its own, like readers of different
// clients. A reader that comes after a writer waits behind it.
func TestReadersThatDiffer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.client()
		values := make(map[string]bool)
		var holds []*lock.Hold
		for i := range 5 {
			held, err := c.TryAcquire(t.Context(), "k", lock.WithShared(), lock.WithValue(fmt.Sprint(i%3)))
			must(t, err)
			holds = append(holds, held)
		}
		claims := w.holding("k")
		for _, c := range claims {
			values[c.GetValue()] = true
		}
		if len(claims) != 3 || len(values) != 3 {
			t.Errorf("%d claims hold: %v", len(claims), values)
		}
		writer := acquiring(t.Context(), c, "k")
		waits(t, writer)
		late := acquiring(t.Context(), c, "k", lock.WithShared(), lock.WithValue("late"))
		waits(t, late)
		for _, held := range holds {
			waits(t, writer)
			must(t, held.Release(t.Context()))
		}
		written := comes(t, time.Second, writer)
		waits(t, late)
		must(t, written.Release(t.Context()))
		comes(t, time.Second, late)
	})
}

// TestRunnersWithUserData: runners of one client with different user data do not share a claim.
func TestRunnersWithUserData(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.client()
		run := func(options ...lock.SessionRunnerOption) ifrit.Process {
			return ifrit.Background(lock.NewSessionRunner(c, "k", options...))
		}
		first := run()
		<-first.Ready()
		one := run(lock.WithUserData("1"))
		time.Sleep(time.Second)
		two := run(lock.WithUserData("2"))
		time.Sleep(time.Second)
		if isReady(one) || isReady(two) {
			t.Error("it is ready while another one holds")
		}
		must(t, end(first))
		<-one.Ready()
		if got := w.shown(); got != `"" LOCK "1"` || isReady(two) {
			t.Errorf("%s", got)
		}
		must(t, end(one))
		<-two.Ready()
		if got := w.shown(); got != `"" LOCK "2"` {
			t.Errorf("%s", got)
		}
		must(t, end(two))
	})
}

// TestCampaignsOfOneClient: each campaign of a client has a claim and a token of its own, even with the same value, and observers see
// each of them.
func TestCampaignsOfOneClient(t *testing.T) {
	for name, values := range map[string][2]string{"another value": {"one", "two"}, "the same value": {"v", "v"}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c, watcher := w.client(), w.client()
				before := lock.NewElection(watcher, "lead")
				must(t, second(before.Campaign(t.Context(), "before")))
				var tokens diary
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					for leader, err := range lock.NewElection(watcher, "lead").Observe(ctx) {
						if err == nil && leader.Token != 0 && leader.Value != "before" {
							tokens.note("%d %s", leader.Token, leader.Value)
						}
					}
				}()
				time.Sleep(3 * time.Second)
				elections := []*lock.Election{lock.NewElection(c, "lead"), lock.NewElection(c, "lead")}
				leads := make([]<-chan outcome, 2)
				for i, e := range elections {
					leads[i] = holding(func() (*lock.Hold, error) { return e.Campaign(t.Context(), values[i]) })
					waits(t, leads[i])
				}
				must(t, before.Resign(t.Context()))
				first := comes(t, time.Second, leads[0])
				time.Sleep(time.Second) // Observe may miss a leader that resigns at once
				must(t, elections[0].Resign(t.Context()))
				second := comes(t, time.Second, leads[1])
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if second.Token() <= first.Token() {
					t.Errorf("token %d after %d", second.Token(), first.Token())
				}
				tokens.says(t, fmt.Sprintf("%d %s, %d %s", first.Token(), values[0], second.Token(), values[1]))
				cancel()
			})
		})
	}
}

// TestTryAfterTimeout: after a wait that timed out, the error of a try names the actual holder.
func TestTryAfterTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		holder, c := w.client(lock.WithOwner("holder")), w.client(lock.WithOwner("me"))
		must(t, second(holder.Acquire(t.Context(), "k")))
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			if _, err := c.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
			_, err := c.TryAcquire(t.Context(), "k")
			if !errors.Is(err, models.ErrLockCollision) || !strings.Contains(err.Error(), `"holder"`) || strings.Contains(err.Error(), `"me"`) {
				t.Fatalf("after %d ms: %v", i, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := acquiring(ctx, c, "k")
		waits(t, waiting)
		if _, err := c.TryAcquire(t.Context(), "k"); !errors.Is(err, models.ErrLockCollision) || strings.Contains(err.Error(), `held by "me"`) {
			t.Error(err)
		}
		cancel()
		<-waiting
	})
}
