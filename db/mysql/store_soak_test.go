//go:build soak

package mysql

import "testing"

// TestSoakSmallPackets is TestSmallPackets with the rest of the large transactions.
func TestSoakSmallPackets(t *testing.T) {
	smallPackets(t, "LongDataIsKept", "ManyResources", "SessionEnds", "WaitsOfMany")
}

// TestSoakCarefulAlike is TestCarefulAlike with several servers on the same rows.
func TestSoakCarefulAlike(t *testing.T) { carefulAlike(t, "ServersContend", "SameNewResource") }

// TestSoakSkewedNodes is TestSkewedNodes with more renewals.
func TestSoakSkewedNodes(t *testing.T) { skewedNodes(t, 5) }

// TestSoakLargeTransaction is TestLargeTransaction with more claims.
func TestSoakLargeTransaction(t *testing.T) { largeTransaction(t, 512) }
