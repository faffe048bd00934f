//go:build soak

package lock_test

import (
	"testing"
	"time"
)

// TestSoakTrustWindowsNeverOverlap: the same for long, so that somebody holds most of the time, however the dice fall.
func TestSoakTrustWindowsNeverOverlap(t *testing.T) { testTrustWindows(t, 2*time.Hour) }
