//go:build soak

package robustness_test

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
)

// TestSoakWatchMoves is TestWatchMoves with 100,000 transitions.
func TestSoakWatchMoves(t *testing.T) {
	dsn := fixtures.MySQL(t)
	watchMoves(t, 100_000, dsn, dsn)
}

// TestSoakManyWatches is TestManyWatches with a thousand.
func TestSoakManyWatches(t *testing.T) { manyWatches(t, 1000) }
