package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestDeadlocks: the server refuses a command of a session that would cause a deadlock of sessions. Clients and mutexes are refused
// with WithAllowDeadlock(false) only; otherwise they wait, since other goroutines may end the wait.
func TestDeadlocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := w.sessions(2)
		a, b := all[0], all[1]
		for _, ask := range []struct {
			session  *lock.Session
			resource string
		}{{a, "x"}, {b, "y"}, {a, "y"}} {
			must(t, second(ask.session.Lock(t.Context(), ask.resource)))
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
		must(t, x.Release(t.Context())) // by another goroutine than the one that waits
		comes(t, time.Second, next)
		must(t, d.Close())
		comes(t, time.Second, first)
	})
}
