//go:build soak

package mysql

import (
	"fmt"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestSoakSmallPackets is TestSmallPackets with the rest of the large transactions.
func TestSoakSmallPackets(t *testing.T) {
	smallPackets(t, "ManySessionsEnd", "LongDataIsKept", "ManyResources", "SessionEnds", "WaitsOfMany")
}

// TestSoakCarefulAlike is TestCarefulAlike with several servers on the same rows.
func TestSoakCarefulAlike(t *testing.T) { carefulAlike(t, "ServersContend", "SameNewResource") }

// TestSoakSkewedNodes is TestSkewedNodes with more renewals.
func TestSoakSkewedNodes(t *testing.T) { skewedNodes(t, 5) }

// TestSoakLargeTransaction is TestLargeTransaction with more claims.
func TestSoakLargeTransaction(t *testing.T) { largeTransaction(t, 512) }

// TestSoakCountOfMany: an identity with a million claims, beside as many that have ended, is counted in time.
func TestSoakCountOfMany(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	want := claim.Count{Active: 700_000, Waiting: 300_000}
	for status, n := range map[claim.Status]int{claim.Active: want.Active, claim.Waiting: want.Waiting, claim.Released: 1_000_000} {
		for _, identity := range []string{"a", ""} {
			if identity == "" {
				n /= 10
			}
			_, err := s.scanner.Exec(fmt.Sprintf(`INSERT INTO claims (%s, identity)
				SELECT CONCAT('%[3]s-%[4]d-', seq), CONCAT('%[3]s', seq), 'o', 0, 0, 0, 1, NULL, '', %[4]d, seq, seq, seq, seq, seq, seq, seq, '', '%[3]s' FROM seq_1_to_%[2]d`,
				plainColumns, n, identity, status))
			must(t, err)
		}
	}
	got, err := s.Usage(t.Context(), "a", []string{"none"})
	must(t, err)
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
