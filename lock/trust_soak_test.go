//go:build soak

package lock_test

import (
	"testing"
	"time"
)

// TestSoakTrustWindowsNeverOverlap: the same for two hours; the lock is held most of the time.
func TestSoakTrustWindowsNeverOverlap(t *testing.T) { testTrustWindows(t, 2*time.Hour) }
