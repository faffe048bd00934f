package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
)

// TestHoldContexts: the contexts of a hold and of Do, and contexts with values derived from them, are done as soon as the trust window
// has ended, even if no timer has run. Derived contexts that can be canceled are done after any of these was asked.
func TestHoldContexts(t *testing.T) {
	type key struct{}
	isDone := func(ctx context.Context) bool {
		select {
		case <-ctx.Done():
			return true
		default:
			return false
		}
	}
	ways := map[string]func(ctx context.Context) bool{
		"Err":  func(ctx context.Context) bool { return ctx.Err() != nil },
		"Done": isDone,
		"of one with a value": func(ctx context.Context) bool {
			return context.WithValue(ctx, key{}, 1).Err() != nil
		},
		"of a new one with an end": func(ctx context.Context) bool {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return child.Err() != nil
		},
	}
	for name, ended := range ways {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c := w.client()
				follow := func(ctx context.Context, held *lock.Hold) {
					child, cancel := context.WithTimeout(ctx, time.Hour)
					defer cancel()
					lock.StopClock(held)
					for range 5_000 {
						time.Sleep(4 * time.Millisecond)
						now := time.Now()
						done, err := ended(ctx), held.Err()
						if done != (err != nil) {
							t.Fatalf("done: %t, and the hold says %v", done, err)
						}
						if done {
							if !isDone(child) || !errors.Is(context.Cause(ctx), lock.ErrLost) || !errors.Is(context.Cause(child), lock.ErrLost) || time.Now() != now {
								t.Errorf("its child: %v; %v, %v", child.Err(), context.Cause(ctx), context.Cause(child))
							}
							return
						}
					}
					t.Error("it does not end")
				}
				held, err := c.Acquire(t.Context(), "k")
				must(t, err)
				w.Set(locktest.Cut)
				follow(held.Context(), held)
				w.Set(locktest.Open)

				second, err := c.Acquire(t.Context(), "l")
				must(t, err)
				err = c.Do(t.Context(), "k", func(ctx context.Context, _ uint64) error {
					w.Set(locktest.Cut)
					follow(ctx, second) // both holds have the same trust window
					return nil
				})
				if !errors.Is(err, lock.ErrLost) {
					t.Error(err)
				}
			})
		})
	}
}

// TestDoWithinDo: the contexts of nested locks end together when their session is lost.
func TestDoWithinDo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.client()
		err := c.Do(t.Context(), "outer", func(ctx context.Context, _ uint64) error {
			held, err := c.Acquire(ctx, "between")
			must(t, err)
			return c.Do(held.Context(), "inner", func(inner context.Context, _ uint64) error {
				w.Set(locktest.Cut)
				for ctx.Err() == nil || inner.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				<-inner.Done()
				return context.Cause(inner)
			})
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		w.Set(locktest.Open)
	})
}
