//go:build soak

package robustness_test

import "testing"

// TestSoakWaitersThatAreKilled is TestWaitersThatAreKilled with a thousand.
func TestSoakWaitersThatAreKilled(t *testing.T) { killWaiters(t, 1000) }
