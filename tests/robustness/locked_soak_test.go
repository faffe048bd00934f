//go:build soak

package robustness_test

import (
	"fmt"
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

// TestSoakLeasesStandStillBehindLocks is TestLeasesStandStillBehindLocks with one server and with two behind each obstacle.
func TestSoakLeasesStandStillBehindLocks(t *testing.T) {
	tests := make(map[string]func(*testing.T))
	for name, obstacle := range obstacles {
		for servers := 1; servers <= 2; servers++ {
			tests[fmt.Sprint(name, ", servers: ", servers)] = func(t *testing.T) { behind(t, obstacle, servers) }
		}
	}
	harness.AtOnce(t, tests)
}

// TestSoakLeasesOfLockedRows is TestLeasesOfLockedRows with the rows of claims too, and with one server and two.
func TestSoakLeasesOfLockedRows(t *testing.T) {
	harness.AtOnce(t, map[string]func(*testing.T){
		"claims":              func(t *testing.T) { besideLocked(t, lockedClaims, 1) },
		"claims, two servers": func(t *testing.T) { besideLocked(t, lockedClaims, 2) },
		"resources":           func(t *testing.T) { besideLocked(t, lockedResources, 1) },
	})
}

// lockedClaims are the rows of the claims of renewing.
const lockedClaims = "SELECT id FROM claims FORCE INDEX (PRIMARY) WHERE id IN ('c0', 'c1', 'c2', 'c3', 'c4') FOR UPDATE"
