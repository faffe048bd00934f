//go:build soak

package mysql

import "testing"

// TestSoakSmallPackets is TestSmallPackets with the rest of the large transactions.
func TestSoakSmallPackets(t *testing.T) {
	smallPackets(t, "LongDataIsKept", "ManyResources", "SessionEnds", "WaitsOfMany")
}

// TestSoakCarefulAlike is TestCarefulAlike with several servers on the same rows.
func TestSoakCarefulAlike(t *testing.T) { carefulAlike(t, "ServersContend", "SameNewResource") }
