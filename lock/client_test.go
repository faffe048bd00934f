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
	"github.com/locket-service/locket/models"
)

// TestAcquire: what is acquired is held until it is released, which is exact, and may be repeated.
func TestAcquire(t *testing.T) {
	inWorld(t, func(t *testing.T, h *world) {
		a, b := h.client(lock.WithOwner("a")), h.client(lock.WithOwner("b"))
		server := h.own()
		held, err := a.Acquire(t.Context(), "nightly", lock.WithValue("of a"))
		must(t, err)
		got, err := server.Fetch(t.Context(), &models.FetchRequest{Key: "nightly"})
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
		second := make(chan *lock.Hold)
		go func() {
			h, err := b.Acquire(t.Context(), "nightly")
			must(t, err)
			second <- h
		}()
		time.Sleep(time.Second)
		must(t, held.Release(t.Context()))
		next := <-second
		must(t, held.Release(t.Context())) // and not the second
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
		if _, err := server.Fetch(t.Context(), &models.FetchRequest{Key: "nightly"}); !errors.Is(err, models.ErrResourceNotFound) {
			t.Errorf("after the end of its client: %v", err)
		}
		must(t, errors.Join(a.Close(), a.Close()))
	})
}

// TestOneSession: a client has one session, opened when it is first needed, and another one for another TTL.
func TestOneSession(t *testing.T) {
	inWorld(t, func(t *testing.T, h *world) {
		c := h.client(lock.WithTTL(10 * time.Second))
		server := h.own()
		count := func(want int) {
			t.Helper()
			list, err := server.ListSessions(t.Context(), &models.ListSessionsRequest{})
			must(t, err)
			if len(list.GetSessions()) != want {
				t.Errorf("%d sessions, want %d: %v", len(list.GetSessions()), want, list)
			}
		}
		count(0)
		for i, options := range [][]lock.AcquireOption{nil, {lock.WithShared()}, {lock.WithTTL(10 * time.Second)}, {lock.WithTTL(time.Minute)}} {
			_, err := c.Acquire(t.Context(), fmt.Sprint(i), options...)
			must(t, err)
		}
		count(2)
		if _, err := c.Acquire(t.Context(), "k", lock.WithTTL(time.Millisecond)); err == nil {
			t.Error("a TTL of 1 ms")
		}
		must(t, c.Close())
		count(0)
	})
}

// TestDo: the function works under the lock; its context ends with the lock, and the loss is in the error.
func TestDo(t *testing.T) {
	inWorld(t, func(t *testing.T, h *world) {
		c := h.client()
		server := h.own()
		own := errors.New("of its own")
		err := c.Do(t.Context(), "k", func(ctx context.Context, token uint64) error {
			got, err := server.Fetch(ctx, &models.FetchRequest{Key: "k"})
			must(t, err)
			if got.GetToken() != token {
				t.Errorf("%d, and the server says %d", token, got.GetToken())
			}
			return own
		})
		if !errors.Is(err, own) || errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		err = c.Do(t.Context(), "k", func(ctx context.Context, _ uint64) error {
			_, err := server.ResetSessions(t.Context(), &models.ResetSessionsRequest{})
			must(t, err)
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
		must(t, c.Close())
	})
}

// TestClientGoesOn: after the loss of its session a client holds nothing, and acquires by a new one: what waits goes
// on to wait.
func TestClientGoesOn(t *testing.T) {
	inWorld(t, func(t *testing.T, h *world) {
		c, other := h.client(), h.client()
		server := h.own()
		held, err := c.Acquire(t.Context(), "mine")
		must(t, err)
		theirs, err := other.Acquire(t.Context(), "theirs")
		must(t, err)
		before, err := c.Session()
		must(t, err)
		waited := make(chan error, 1)
		go func() {
			_, err := c.Acquire(t.Context(), "theirs")
			waited <- err
		}()
		time.Sleep(time.Second)
		keep, err := other.Session()
		must(t, err)
		_, err = server.ResetSessions(t.Context(), &models.ResetSessionsRequest{Keep: []string{keep.ID()}})
		must(t, err)
		<-held.Done()
		if !errors.Is(before.Err(), lock.ErrSessionEnded) && !errors.Is(held.Err(), lock.ErrLost) {
			t.Errorf("%v, %v", before.Err(), held.Err())
		}
		time.Sleep(time.Second)
		must(t, theirs.Release(t.Context()))
		must(t, <-waited)
		after, err := c.Session()
		must(t, err)
		if after.ID() == before.ID() {
			t.Error("the session is the same")
		}
		must(t, errors.Join(c.Close(), other.Close()))
	})
}

// TestResignsBeforeOthersHold: clients that are cut off from the server, again and again and for any time, never
// rely on a lock together: each has noticed its loss before another one is granted.
func TestResignsBeforeOthersHold(t *testing.T) {
	var lost, got int
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, h *world) {
				random := rand.New(rand.NewPCG(seed, 1))
				const ttl = 5 * time.Second
				var mu sync.Mutex
				holders := make(map[*lock.Hold]bool)
				var last uint64
				ctx, stop := context.WithCancel(t.Context())
				var working sync.WaitGroup
				partitions := make([]*partition, 3)
				for i := range partitions {
					partitions[i] = &partition{world: h}
					c, err := lock.NewClient(anyAddress, lock.WithTTL(ttl), partitions[i].dialer())
					must(t, err)
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
						must(t, c.Close())
					})
				}
				for range 40 {
					time.Sleep(time.Duration(random.Int64N(int64(ttl))))
					partitions[random.IntN(len(partitions))].set(random.IntN(3))
				}
				for _, p := range partitions {
					p.set(0)
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

// TestCutOffWaits: without a server an Acquire waits for its context, and a session that never was open ends with
// its client.
func TestCutOffWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, h *world) {
		h.cutOff(true)
		c := h.client()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := c.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		held := make(chan error, 1)
		go func() {
			_, err := c.Acquire(t.Context(), "k")
			held <- err
		}()
		time.Sleep(time.Minute)
		h.cutOff(false)
		must(t, <-held)
		h.cutOff(true)
		begun := time.Now()
		if err := c.Close(); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 6*time.Second {
			t.Errorf("closed after %v: %v", time.Since(begun), err)
		}
		h.cutOff(false)
	})
}

// TestCommandTimeout: a command without an answer ends with its timeout; what it asked for is given up.
func TestCommandTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, h *world) {
		p := &partition{world: h}
		s, err := lock.NewSession(anyAddress, lock.WithCommandTimeout(time.Second), p.dialer())
		must(t, err)
		other := h.session()
		_, err = other.Lock(t.Context(), "taken")
		must(t, err)
		m := lock.NewMutex(s, "k")
		must(t, m.Lock(t.Context()))
		must(t, m.Unlock())
		p.set(1)
		for name, err := range map[string]error{"lock": m.Lock(t.Context()), "session": second(s.Lock(t.Context(), "other"))} {
			if !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("%s: %v", name, err)
			}
		}
		begun := time.Now()
		_ = m.Lock(t.Context())
		if took := time.Since(begun); took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		p.set(0)
		stands(t, s, "nothing", lock.None)
		time.Sleep(10 * time.Second)
		stands(t, s, "k", lock.None)
		stands(t, s, "other", lock.Holding)
		taken := make(chan error, 1)
		go func() { taken <- lock.NewMutex(s, "taken").Lock(t.Context()) }() // the wait in the queue is no command
		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, err = other.Unlock(t.Context(), "taken")
		must(t, err)
		must(t, <-taken)
		closeAll(t, s, other)
	})
}
