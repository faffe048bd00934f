package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/reentrant"
	"github.com/locket-service/locket/tests/harness"
)

// TestFiveSessionsThreeKeys: five sessions lock the same three keys. They hold them in the order of their commands, as the session before
// them unlocks each key, unlocks all, or is closed.
func TestFiveSessionsThreeKeys(t *testing.T) {
	for _, way := range []string{"unlock", "unlock all", "close"} {
		t.Run(way, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				all := w.sessions(5)
				keys := []string{"a", "b", "c"}
				for i, s := range all {
					for _, key := range keys {
						got, err := s.Lock(t.Context(), key)
						must(t, err)
						if want := map[bool]lock.State{true: lock.Holding, false: lock.Waiting}[i == 0]; got.Current != want {
							t.Errorf("%s of s%d: %s", key, i, got.Current)
						}
					}
				}
				tokens := make(map[string]uint64)
				for i, s := range all {
					for _, key := range keys {
						got := stands(t, s, key, lock.Holding)
						if got.Token <= tokens[key] {
							t.Errorf("the token of %s is %d after %d", key, got.Token, tokens[key])
						}
						tokens[key] = got.Token
						for _, later := range all[i+1:] {
							stands(t, later, key, lock.Waiting)
						}
					}
					switch way {
					case "unlock":
						for _, key := range keys {
							got, err := s.Unlock(t.Context(), key)
							must(t, err)
							if got.Previous != lock.Holding || got.Current != lock.None {
								t.Errorf("unlock: %+v", got)
							}
						}
					case "unlock all":
						must(t, s.UnlockAll(t.Context()))
					case "close":
						must(t, s.Close(t.Context()))
					}
					for _, key := range keys {
						stands(t, s, key, lock.None)
					}
				}
			})
		})
	}
}

// TestCommands: each command, for a session that holds, one that waits, and one that does neither.
func TestCommands(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := w.sessions(3)
		a, b, c := all[0], all[1], all[2]
		var heard diary
		b.Listen(lines(&heard))
		ask := func(s *lock.Session, f func(context.Context, string, ...lock.AcquireOption) (lock.Status, error), want lock.State) lock.Status {
			t.Helper()
			got, err := f(t.Context(), "k")
			must(t, err)
			if got.Current != want {
				t.Errorf("%s: %+v, want %s", s.Owner(), got, want)
			}
			return got
		}
		first := ask(a, a.Lock, lock.Holding)
		if again := ask(a, a.Lock, lock.Holding); again.Token != first.Token {
			t.Errorf("locked again with the token %d, after %d", again.Token, first.Token)
		}
		ask(a, a.TryLock, lock.Holding)
		if tried := ask(b, b.TryLock, lock.None); tried.Holder != "s0" || tried.HolderSession != a.ID() || tried.HolderToken != first.Token {
			t.Errorf("tried: %+v", tried)
		}
		ask(b, b.Lock, lock.Waiting)
		ask(c, c.Lock, lock.Waiting)
		ask(b, b.Lock, lock.Waiting) // it keeps its place
		ask(b, b.TryLock, lock.Waiting)
		if got, err := b.Unlock(t.Context(), "k"); err != nil || got.Previous != lock.Waiting || got.Current != lock.None {
			t.Errorf("a waiter unlocks: %+v, %v", got, err)
		}
		if got, err := b.Unlock(t.Context(), "k"); err != nil || got.Previous != lock.None || got.Current != lock.None {
			t.Errorf("nobody unlocks: %+v, %v", got, err)
		}
		ask(b, b.Lock, lock.Waiting)
		must(t, second(a.Unlock(t.Context(), "k")))
		stands(t, c, "k", lock.Holding)
		must(t, c.UnlockAll(t.Context()))
		stands(t, b, "k", lock.Holding)
		heard.says(t, "k NONE-WAITING, k WAITING-NONE, k NONE-WAITING, k WAITING-HOLDING")
	})
}

// TestTenGoroutinesFiveSessions: ten goroutines on five sessions increment a variable 500 times under one mutex.
func TestTenGoroutinesFiveSessions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := w.sessions(5)
		const each = 50
		var sum int // guarded only by the mutex
		var last uint64
		var adding sync.WaitGroup
		for i := range 10 {
			m := lock.NewMutex(all[i%5], "sum")
			adding.Go(func() {
				for range each {
					if err := m.Lock(t.Context()); err != nil {
						t.Error(err)
						return
					}
					sum++
					token, held := m.Held()
					if !held || token < last {
						t.Errorf("the token %d (%t) after %d", token, held, last)
					}
					last = token
					if err := m.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		adding.Wait()
		if sum != 10*each {
			t.Errorf("%d", sum)
		}
	})
}

// TestMutexInterrupted: a wait whose context ends returns at once, leaves the queue, and does not delay others.
func TestMutexInterrupted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := w.sessions(3)
		holder, waiter, next := lock.NewMutex(all[0], "k"), lock.NewMutex(all[1], "k"), lock.NewMutex(all[2], "k")
		must(t, holder.Lock(t.Context()))
		ctx, interrupt := context.WithCancel(t.Context())
		waited := harness.Later(func() error { return waiter.Lock(ctx) })
		stands(t, all[1], "k", lock.Waiting)
		interrupt()
		synctest.Wait()
		if len(waited) == 0 {
			t.Error("it waits on after the interruption")
		}
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		stands(t, all[1], "k", lock.None)
		started := time.Now()
		if had, err := waiter.TryLock(t.Context()); had || err != nil || time.Since(started) > 100*time.Millisecond {
			t.Errorf("%t, %v, after %v", had, err, time.Since(started))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := waiter.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		waited = harness.Later(func() error { return next.Lock(t.Context()) })
		stands(t, all[2], "k", lock.Waiting)
		must(t, holder.Unlock())
		must(t, <-waited)
		if err := holder.Unlock(); !errors.Is(err, lock.ErrNotLocked) {
			t.Error(err)
		}
	})
}

// TestUnexpected: the handlers of a mutex are called only when the lock changes without the mutex.
func TestUnexpected(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.session()
		var heard diary
		m := lock.NewMutex(s, "k",
			lock.WithUnexpectedLock(func(lock.Status) { heard.note("locked") }),
			lock.WithUnexpectedUnlock(func(s lock.Status) {
				if !errors.Is(s.Cause, lock.ErrLost) {
					t.Error(s.Cause)
				}
				heard.note("unlocked")
			}))
		must(t, m.Lock(t.Context()))
		must(t, m.Unlock())
		runtime.GC() // the session does not keep the mutex
		synctest.Wait()
		heard.says(t, "")
		must(t, second(s.Lock(t.Context(), "k")))
		synctest.Wait()
		heard.says(t, "locked")
		must(t, m.Lock(t.Context())) // the session holds it already
		must(t, second(s.Unlock(t.Context(), "k")))
		synctest.Wait()
		heard.says(t, "locked, unlocked")
		if _, held := m.Held(); held {
			t.Error("held")
		}
		if had, err := m.TryLock(t.Context()); had || err != nil {
			t.Errorf("the mutex was locked before its holder had unlocked it: %t, %v", had, err)
		}
		must(t, m.Unlock())
		must(t, m.Lock(t.Context()))
		must(t, s.Close(t.Context()))
		synctest.Wait()
		heard.says(t, "locked, unlocked, unlocked")
		if err := m.Lock(t.Context()); !errors.Is(err, lock.ErrClosed) {
			t.Error(err)
		}
		must(t, m.Unlock())
	})
}

// TestReentrant: an owner may lock its mutex again, and must unlock it as often. Another owner of the same resource
// is excluded. A lock that was lost cannot be locked again.
func TestReentrant(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.session()
		m := lock.NewRWMutex(s, "k")
		a, b := reentrant.NewRWMutex(s, "k"), reentrant.NewRWMutex(s, "k")
		must(t, errors.Join(a.Lock(t.Context()), a.Lock(t.Context()), a.RLock(t.Context())))
		try := func(name string, want bool, lock func(context.Context) (bool, error)) {
			t.Helper()
			if had, err := lock(t.Context()); had != want || err != nil {
				t.Errorf("%s: %t, %v", name, had, err)
			}
		}
		try("write beside a writer", false, b.TryLock)
		try("read beside a writer", false, b.TryRLock)
		must(t, errors.Join(a.Unlock(), a.Unlock()))
		try("while the writer still reads", false, b.TryLock)
		must(t, a.RUnlock())
		if err := errors.Join(a.RUnlock()); !errors.Is(err, lock.ErrNotLocked) {
			t.Error(err)
		}
		try("read", true, a.TryRLock)
		try("read beside a reader", true, b.TryRLock)
		if err := b.Lock(t.Context()); !errors.Is(err, reentrant.ErrUpgrade) {
			t.Error(err)
		}
		try("write beside readers", false, m.TryLock)
		must(t, errors.Join(a.RUnlock(), b.RUnlock()))
		try("write", true, m.TryLock)
		must(t, m.Unlock())

		one, other := reentrant.NewMutex(s, "l"), reentrant.NewMutex(s, "l")
		must(t, errors.Join(one.Lock(t.Context()), one.Lock(t.Context()), one.Unlock()))
		try("beside an owner", false, other.TryLock)
		if token, held := one.Held(); !held || token == 0 {
			t.Errorf("held %t with %d", held, token)
		}
		must(t, s.UnlockAll(t.Context()))
		synctest.Wait()
		if err := one.Lock(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		try("before the owner has unlocked", false, other.TryLock)
		must(t, one.Unlock())
		try("after it has", true, other.TryLock)
		must(t, other.Unlock())
	})
}

// TestReaders: readers of one session and of others hold together. A later reader joins them unless a writer of any session waits.
func TestReaders(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := w.sessions(2)
		here, there := lock.NewRWMutex(all[0], "k"), lock.NewRWMutex(all[1], "k")
		must(t, errors.Join(here.RLock(t.Context()), there.RLock(t.Context()), here.RLock(t.Context())))
		written := harness.Later(func() error { return there.Lock(t.Context()) })
		time.Sleep(time.Second)
		if len(written) > 0 {
			t.Fatalf("a writer beside readers: %v", <-written)
		}
		// The writer waits for the reader of its own session, and not yet in the queue, so others may still join here.
		must(t, errors.Join(here.RLock(t.Context()), there.RUnlock()))
		stands(t, all[1], "k", lock.Waiting)
		if had, err := here.TryRLock(t.Context()); had || err != nil {
			t.Errorf("a reader overtakes a writer: %t, %v", had, err)
		}
		read := harness.Later(func() error { return here.RLock(t.Context()) })
		time.Sleep(time.Second)
		must(t, errors.Join(here.RUnlock(), here.RUnlock(), here.RUnlock()))
		must(t, <-written)
		must(t, there.Unlock())
		must(t, <-read)
		must(t, here.RUnlock())
	})
}

// TestGoroutinesTakeTurns: the goroutines of a session hold in order of arrival. Goroutines of another session wait
// only for the ones that came before them.
func TestGoroutinesTakeTurns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := w.sessions(2)
		first := lock.NewMutex(all[0], "k")
		must(t, first.Lock(t.Context()))
		var order diary
		var waiting sync.WaitGroup
		wait := func(name string, s *lock.Session) {
			m := lock.NewMutex(s, "k")
			waiting.Go(func() {
				if err := m.Lock(t.Context()); err != nil {
					t.Error(err)
				}
				order.note("%s", name)
				if err := m.Unlock(); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		for i := range 3 {
			wait(fmt.Sprint("a", i), all[0])
		}
		wait("b0", all[1])
		wait("b1", all[1])
		wait("a3", all[0])
		must(t, first.Unlock())
		waiting.Wait()
		order.says(t, "b0, b1, a0, a1, a2, a3")
	})
}

// TestMutexLocker: the sync.Locker of a mutex panics when the session is over.
func TestMutexLocker(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.session()
		locker := lock.NewMutex(s, "k").Locker()
		locker.Lock()
		stands(t, s, "k", lock.Holding)
		locker.Unlock()
		must(t, s.Close(t.Context()))
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, lock.ErrClosed) {
				t.Error(err)
			}
		}()
		locker.Lock()
	})
}

// TestInvalid: invalid arguments are refused, and have no effect.
func TestInvalid(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.session()
		for name, err := range map[string]error{
			"no resource":   lock.NewMutex(s, "").Lock(t.Context()),
			"NUL":           lock.NewMutex(s, "a\x00").Lock(t.Context()),
			"not UTF-8":     lock.NewMutex(s, "\xff").Lock(t.Context()),
			"long":          lock.NewMutex(s, string(make([]byte, 1025))).Lock(t.Context()),
			"long value":    second(s.Lock(t.Context(), "k", lock.WithValue(string(make([]byte, 65537))))),
			"value":         second(s.Lock(t.Context(), "k", lock.WithValue("\xff"))),
			"TTL":           second(s.Lock(t.Context(), "k", lock.WithTTL(time.Hour))),
			"unlock":        second(s.Unlock(t.Context(), "")),
			"no addresses":  second(lock.NewClient(nil)),
			"short TTL":     second(lock.NewSession(anyAddress, lock.WithTTL(time.Millisecond))),
			"long TTL":      second(lock.NewSession(anyAddress, lock.WithTTL(25*time.Hour))),
			"callbacks":     second(lock.NewClient(anyAddress, lock.WithCallbacks(lock.Callbacks{Verified: func() {}}))),
			"retries":       second(lock.NewClient(anyAddress, lock.WithRetryInterval(time.Hour))),
			"negative":      second(lock.NewClient(anyAddress, lock.WithCommandTimeout(-1))),
			"other machine": second(lock.NewClient([]string{"example.com:1"})),
		} {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		must(t, lock.NewMutex(s, "k").Lock(t.Context()))
	})
}

// TestListenerSlow: a slow listener delays only itself. It is called for every change, in order, and never twice at the same time. A
// listener that was stopped is not called any more.
func TestListenerSlow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.session()
		var slow, quick, stopped diary
		busy := false // guarded by nothing: calls do not overlap
		note := lines(&slow)
		s.Listen(func(status lock.Status) {
			if busy {
				t.Error("called twice at once")
			}
			busy = true
			time.Sleep(time.Minute)
			note(status)
			busy = false
		})
		s.Listen(lines(&quick))
		var late diary
		noteLate := lines(&late)
		stopLate := s.Listen(func(status lock.Status) {
			time.Sleep(time.Minute)
			noteLate(status)
		})
		stop := s.Listen(lines(&stopped))
		for _, key := range []string{"a", "b"} {
			must(t, second(s.Lock(t.Context(), key)))
		}
		synctest.Wait()
		stop()
		stopLate() // one call is under way, and another one waits
		must(t, s.UnlockAll(t.Context()))
		synctest.Wait()
		stopped.says(t, "a NONE-HOLDING, b NONE-HOLDING")
		slow.says(t, "")
		want := quick.String()
		if want != "a NONE-HOLDING, b NONE-HOLDING, a HOLDING-NONE, b HOLDING-NONE" && want != "a NONE-HOLDING, b NONE-HOLDING, b HOLDING-NONE, a HOLDING-NONE" {
			t.Errorf("heard: %s", want)
		}
		must(t, s.Close(t.Context()))
		time.Sleep(5 * time.Minute)
		slow.says(t, want)
		late.says(t, "a NONE-HOLDING")
	})
}
