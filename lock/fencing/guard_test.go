package fencing_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/locket-service/locket/lock/fencing"
)

func TestGuard(t *testing.T) {
	var guard fencing.Guard
	broken := errors.New("the disk is full")
	for _, step := range []struct {
		token     uint64
		err, want error // of the write, and of Do
		called    bool
	}{
		{token: 0, want: fencing.ErrNoToken}, // though nothing was seen
		{token: 33, called: true},
		{token: 33, called: true}, // the same holder again
		{token: 32, want: fencing.ErrStale},
		{token: 0, want: fencing.ErrNoToken},
		{token: 35, called: true},
		{token: 34, want: fencing.ErrStale},
		{token: 40, called: true, err: broken, want: broken}, // the written data is not known
		{token: 39, want: fencing.ErrStale},
		{token: 40, called: true},
		{token: 1<<64 - 1, called: true},
		{token: 40, want: fencing.ErrStale},
	} {
		called := false
		err := guard.Do(step.token, func() error {
			called = true
			return step.err
		})
		if !errors.Is(err, step.want) || called != step.called {
			t.Errorf("%d: %v, written: %t; want %v, %t", step.token, err, called, step.want, step.called)
		}
	}
}

// TestGuardPanic: the token of a write that panics counts as seen, and the guard can be used after that.
func TestGuardPanic(t *testing.T) {
	var guard fencing.Guard
	func() {
		defer func() { _ = recover() }()
		_ = guard.Do(2, func() error { panic("a bug") })
		t.Error("the panic was swallowed")
	}()
	if err := guard.Do(1, func() error { return nil }); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a lower one: %v", err)
	}
	if err := guard.Do(2, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestGuardConcurrently: no write follows one with a higher token, and no two writes run at the same time.
func TestGuardConcurrently(t *testing.T) {
	const writers, each = 16, 1000
	var (
		guard   fencing.Guard
		highest atomic.Uint64
		inside  atomic.Int32
		refused atomic.Int32
		written []uint64
		all     sync.WaitGroup
	)
	for range writers {
		all.Go(func() {
			for range each {
				token := highest.Add(1) + rand.Uint64N(4)
				runtime.Gosched()
				err := guard.Do(token, func() error {
					if inside.Add(1) != 1 {
						t.Error("two at once")
					}
					runtime.Gosched()
					written = append(written, token)
					inside.Add(-1)
					return nil
				})
				if errors.Is(err, fencing.ErrStale) {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d were written, %d refused", len(written), refused.Load())
	if len(written)+int(refused.Load()) != writers*each {
		t.Errorf("of %d, %d were written and %d refused", writers*each, len(written), refused.Load())
	}
	if !slices.IsSorted(written) {
		t.Error("a lower one was written after a higher one")
	}
}
