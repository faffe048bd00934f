//go:build soak

package robustness_test

import "testing"

// TestSoakSessionEventsOnce is TestSessionEventsOnce with more rounds.
func TestSoakSessionEventsOnce(t *testing.T) { sessionEvents(t, 300, 20) }
