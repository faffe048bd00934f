package mysql

import (
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
)

// TestServersWithoutSessionsRest: servers that had sessions once, and have none any more, need not look at each other, so that none of them goes on
// beating because the others do.
func TestServersWithoutSessionsRest(t *testing.T) {
	dsn := fixtures.MySQL(t)
	a, b := open(t, dsn), open(t, dsn)
	must(t, a.Register(t.Context(), "a"))
	must(t, b.Register(t.Context(), "b"))
	for name, s := range map[string]*Store{"a": a, "b": b} {
		if due, err := s.Due(t.Context(), db.DueQuery{}); due.Next != 0 || err != nil {
			t.Errorf("%s is to look %s from now (%v)", name, due.Next.Sub(due.Now.Lease), err)
		}
	}
}
