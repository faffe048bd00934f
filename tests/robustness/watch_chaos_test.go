//go:build chaos

package robustness_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
)

// TestChaosWatchMoves is TestWatchMoves on two nodes of a cluster, whose clocks differ.
func TestChaosWatchMoves(t *testing.T) {
	nodes := fixtures.NewSkewedGalera(t, 0, 300*time.Millisecond)
	watchMoves(t, 4_000, nodes[0].DSN("locket"), nodes[1].DSN("locket"))
}
