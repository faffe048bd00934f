//go:build soak

package waits_test

import "testing"

// TestSoakTwoServers is TestTwoServers with more rounds.
func TestSoakTwoServers(t *testing.T) { twoServers(t, 1000) }

// TestSoakRandom is TestRandom and TestRandomDatabase for longer.
func TestSoakRandom(t *testing.T) {
	for seed := range uint64(30) {
		randomInBubble(t, seed, 40)
		randomDatabase(t, seed, 10)
	}
}
