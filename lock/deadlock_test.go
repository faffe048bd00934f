package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestDeadlocks: a session is refused a wait that causes a deadlock of sessions, and so are clients and mutexes that ask
// for it. Without that they wait: other goroutines may end the wait.
func TestDeadlocks(t *testing.T) {
	inWorld(t, func(t *testing.T, h *world) {
		all := sessions(h, 2)
		a, b := all[0], all[1]
		for _, ask := range []struct {
			session  *lock.Session
			resource string
		}{{a, "x"}, {b, "y"}, {a, "y"}} {
			_, err := ask.session.Lock(t.Context(), ask.resource)
			must(t, err)
		}
		refused := map[string]error{
			"session": second(b.Lock(t.Context(), "x")),
			"mutex":   lock.NewMutex(b, "x", lock.WithAllowDeadlock(false)).Lock(t.Context()),
		}
		for name, err := range refused {
			var deadlock *models.DeadlockError
			if !errors.As(err, &deadlock) || len(deadlock.Members) != 2 || deadlock.Members[0].Resource != "x" || deadlock.Members[1].Resource != "y" || models.ReasonOf(err) != models.ReasonDeadlock {
				t.Errorf("%s: %v, %+v", name, err, deadlock)
			}
		}
		if got, err := b.Lock(t.Context(), "x", lock.WithAllowDeadlock(true)); err != nil || got.Current != lock.Waiting {
			t.Errorf("%+v, %v", got, err)
		}
		closeAll(t, all...)

		c, d := h.client(), h.client()
		x, err := c.Acquire(t.Context(), "x")
		must(t, err)
		_, err = d.Acquire(t.Context(), "y")
		must(t, err)
		waiting := func(c *lock.Client, key string) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := c.Acquire(t.Context(), key)
				done <- err
			}()
			time.Sleep(time.Second)
			return done
		}
		first := waiting(c, "y")
		var deadlock *models.DeadlockError
		if _, err := d.Acquire(t.Context(), "x", lock.WithAllowDeadlock(false)); !errors.As(err, &deadlock) || len(deadlock.Members) != 2 {
			t.Error(err)
		}
		second := waiting(d, "x")
		must(t, x.Release(t.Context())) // by another goroutine than the one that waits
		must(t, <-second)
		must(t, d.Close())
		must(t, <-first)
		must(t, c.Close())
	})
}
