package sqlite

import (
	"testing"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db/dbtest"
)

func TestIdentityClaims(t *testing.T) {
	s := crowded(t)
	dbtest.IdentityClaims(t, s, func() (n int) {
		if err := s.read(t.Context(), "SELECT count(*) FROM identity_claims", func(row *sqlite.Stmt) { n = row.ColumnInt(0) }); err != nil {
			t.Fatal(err)
		}
		return n
	})
}
