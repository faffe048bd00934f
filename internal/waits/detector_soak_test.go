//go:build soak

package waits_test

import "testing"

// TestSoakTwoServers is TestTwoServers with more rounds.
func TestSoakTwoServers(t *testing.T) { twoServers(t, 1000) }
