//go:build soak

package mysql

import (
	"fmt"
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/claim"
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

// TestSoakCountsOfMany: the claims of identities that have more together than one statement counts are counted right, and those that have ended forgotten.
func TestSoakCountsOfMany(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	allowRecursion(t, s)
	want := map[string]claim.Count{"a": {Active: 5}, "b": {Active: 30_000}, "c": {Waiting: 15_000}, "d": {Active: 1, Waiting: 0}, "none": {}}
	for identity, c := range want {
		for status, n := range map[claim.Status]int{claim.Active: c.Active, claim.Waiting: c.Waiting, claim.Released: 100} {
			if n == 0 {
				continue
			}
			fill := fmt.Sprintf(`INSERT INTO claims (%s, identity) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
				SELECT CONCAT('%[3]s-%[4]d-', i), CONCAT('%[3]s', i), 'o', 0, 0, 1, NULL, '', %[4]d, i, i, i, i, i, i, i, '', '%[3]s' FROM n`, firstColumns, n, identity, status)
			_, err := s.scanner.Exec(fill)
			must(t, err)
		}
	}
	_, err := s.scanner.Exec("INSERT INTO identity_claims (identity, claim) SELECT identity, id FROM claims WHERE identity <> ''")
	must(t, err)
	outcome, err := s.Transact(t.Context(), db.Batch{Unknown: []string{"d", "none", "c", "a", "b"}, Requests: []claim.Request{{Command: acquires("x")[0]}}})
	must(t, err)
	for identity, c := range want {
		if outcome.Counts[identity] != c {
			t.Errorf("%s has %+v, want %+v", identity, outcome.Counts[identity], c)
		}
	}
	var ended int
	must(t, s.scanner.QueryRow("SELECT COUNT(*) FROM identity_claims JOIN claims ON id = claim WHERE phase = 0").Scan(&ended))
	if ended != 0 {
		t.Errorf("%d that have ended are not forgotten", ended)
	}
}
