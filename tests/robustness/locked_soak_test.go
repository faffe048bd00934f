//go:build soak

package robustness_test

import (
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

// TestSoakLeasesStandStillBehindLocks has the obstacles of which TestLeasesStandStillBehindLocks has those to two servers.
func TestSoakLeasesStandStillBehindLocks(t *testing.T) {
	tests := make(map[string]func(*testing.T))
	for name, obstacle := range obstacles {
		tests[name] = func(t *testing.T) { behind(t, obstacle, 1) }
	}
	harness.AtOnce(t, tests)
}

// TestSoakLeasesOfLockedResources is the part of TestLeasesOfLockedRows with one server.
func TestSoakLeasesOfLockedResources(t *testing.T) { besideLocked(t, lockedResources, 1) }
