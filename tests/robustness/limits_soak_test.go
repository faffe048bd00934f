//go:build soak

package robustness_test

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/harness"
)

// TestSoakManyLimits is TestAllLimits with larger amounts.
func TestSoakManyLimits(t *testing.T) {
	allLimits(t, amounts{claims: 36, locks: 150, waiters: 20, ttl: 6})
}

// TestSoakAllLimits is TestAllLimits with greater amounts than fit into one transaction.
func TestSoakAllLimits(t *testing.T) {
	small := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--max-allowed-packet=1M"))
	databases := harness.Engines()
	databases["mysql with small packets"] = func(t *testing.T) string { return "mysql:" + small.CreateDatabase(t) }
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			startExtremes(t, database(t), amounts{claims: 100, locks: 4 * claim.MaxEnds, waiters: claim.MaxGrants + 50, ttl: 60}).run()
		})
	}
}
