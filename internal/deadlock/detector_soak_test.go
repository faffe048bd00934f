//go:build soak

package deadlock_test

import "testing"

// TestSoakTwoServersCauseADeadlock is TestTwoServersCauseADeadlock with more rounds.
func TestSoakTwoServersCauseADeadlock(t *testing.T) { twoServersCauseADeadlock(t, 1000) }
