package mysql

import (
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestPruneBesideLockedRow: an ended claim that somebody keeps locked keeps no other one from being deleted.
func TestPruneBesideLockedRow(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	for _, name := range []string{"a", "b", "c"} {
		results(t, s, acquires(name)...)
		results(t, s, claim.End{ID: "id-" + name})
	}
	foreign := keepsLocked(t, s, "SELECT id FROM claims WHERE id = 'id-a' FOR UPDATE")
	now, err := s.Now(t.Context())
	must(t, err)
	if n, err := s.Prune(t.Context(), now.Wall.Add(time.Hour), 200); n != 2 || err != nil {
		t.Errorf("%d are deleted beside it (%v)", n, err)
	}
	must(t, foreign.Rollback())
	if n, err := s.Prune(t.Context(), now.Wall.Add(time.Hour), 200); n != 1 || err != nil {
		t.Errorf("%d are deleted afterwards (%v)", n, err)
	}
}
