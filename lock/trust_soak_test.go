//go:build soak

package lock_test

import (
	"testing"
	"time"
)

// TestSoakTrustWindowsNeverOverlap: the same for two hours, in which somebody holds most of the time.
func TestSoakTrustWindowsNeverOverlap(t *testing.T) { testTrustWindows(t, 2*time.Hour) }
