package handlers_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/tests/harness"
)

// slowStore takes its time to read the claims of a session.
type slowStore struct{ db.Store }

func (s slowStore) SessionClaims(ctx context.Context, id string) ([]claim.Claim, error) {
	time.Sleep(4 * time.Second)
	return s.Store.SessionClaims(ctx, id)
}

// TestSlowOpen: a client cannot send anything while its session is opened, and that is no silence.
func TestSlowOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startWith(t, t.TempDir(), func(real db.Store) db.Store { return slowStore{real} })
		a := s.open(t, "a", harness.SessionTTL(6))
		time.Sleep(2 * time.Second)
		a.Lock("k", holding)
	})
}
