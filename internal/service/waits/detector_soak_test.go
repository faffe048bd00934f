//go:build soak

package waits_test

import (
	"fmt"
	"testing"
)

// TestSoakTwoServers is TestTwoServers with more rounds.
func TestSoakTwoServers(t *testing.T) { twoServers(t, 1000) }

// TestSoakRandom is TestRandom and TestRandomDatabase for longer.
func TestSoakRandom(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			randomInBubble(t, seed, 40)
			randomDatabase(t, seed, 10)
		})
	}
}
