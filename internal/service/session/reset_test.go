package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/session"
)

// TestResetFails: without a database a reset of many sessions returns one error, and counts only the sessions that it
// has ended: none, when it fails while it ends their waiting claims.
func TestResetFails(t *testing.T) {
	const sessions = 100
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 1) // each command in a transaction of its own
		m := manage(t, w, w.Store)
		for i := range sessions {
			open(t, m, fmt.Sprint(i))
		}
		for _, test := range []struct{ succeed, ended int }{{0, 0}, {1, 0}, {sessions + 2, 2}} {
			done := 0
			w.Store.Set(func(s *committertest.Store) {
				s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
					if done++; done > test.succeed {
						return fmt.Errorf("%w: attempt %d", db.ErrUnavailable, done)
					}
					return s.Update(ctx, fn)
				}
			})
			ended, err := m.Reset(t.Context(), nil)
			if !errors.Is(err, db.ErrUnavailable) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%d transactions succeed: Reset returned the error %v", test.succeed, err)
			}
			if ended != test.ended {
				t.Errorf("%d transactions succeed: %d sessions ended, want %d", test.succeed, ended, test.ended)
			}
		}
		w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
	})
}

// ends returns of how many claims a session hears the end before it ends here.
func ends(t *testing.T, a *session.Attached) (n int) {
	t.Helper()
	for events := a.Next(t.Context()); events != nil; events = a.Next(t.Context()) {
		for _, e := range events {
			if e.Standing != nil && e.Standing.Current == session.None {
				n++
			}
		}
	}
	if !errors.Is(a.Err(), claim.ErrSessionEnded) {
		t.Errorf("it ended with %v", a.Err())
	}
	return n
}

// TestEndIsHeard: a session that is ended hears of the end of each of its claims before its stream ends: even if it
// ends in slow steps, or another server ends it while nothing waits here, so that the feed is read seldom, and slowly.
func TestEndIsHeard(t *testing.T) {
	t.Run("in steps", func(t *testing.T) {
		bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
			const claims = 2*claim.MaxEnds + 10
			a := open(t, m, "a")
			for i := range claims {
				lock(t, a, fmt.Sprint(i))
			}
			synctest.Wait()
			heard(t, a)
			w.Store.Set(func(s *committertest.Store) {
				s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
					time.Sleep(300 * time.Millisecond)
					return s.Update(ctx, fn)
				}
			})
			committertest.Check(t, m.End(t.Context(), "a"))
			if n := ends(t, a); n != claims {
				t.Errorf("it heard of the end of %d of %d claims", n, claims)
			}
			w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
		})
	})
	for name, pause := range map[string]time.Duration{"elsewhere": 0, "elsewhere, read slowly": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) { endElsewhere(t, pause) })
	}
}

func endElsewhere(t *testing.T, pause time.Duration) {
	t.Helper()
	servers(t, func(t *testing.T, _ *committertest.World, here, there *server) {
		here.mu.Lock()
		here.pause = pause
		here.mu.Unlock()
		a := open(t, here.sessions, "a")
		do(t, a, session.Lock{Sequence: 2, Resource: "k"})
		time.Sleep(time.Second)
		committertest.Check(t, there.sessions.End(t.Context(), "a"))
		if n := ends(t, a); n != 1 {
			t.Errorf("it heard of the end of %d claims", n)
		}
	})
}
