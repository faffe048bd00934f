package mysql

import (
	"testing"

	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
)

func TestIdentityClaims(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	if err := s.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	dbtest.IdentityClaims(t, s, func() (n int) {
		if err := s.reader.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM identity_claims").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	})
}
