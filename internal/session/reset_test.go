package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/committer/committertest"
	"github.com/locket-service/locket/internal/session"
)

// TestResetFails: without a database a reset of many sessions returns one error, and counts only the sessions that it
// has ended: none, when it fails while it ends their waiting claims.
func TestResetFails(t *testing.T) {
	const sessions = 100
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 1) // each command in a transaction of its own
		m := session.New(w.Committer, w.Hub, w.Store, session.Config{}, w.Registry)
		committertest.Run(t, w.Committer)
		committertest.Run(t, m)
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
