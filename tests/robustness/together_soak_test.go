//go:build soak

package robustness_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// This is TestTogether for a longer time.
func TestSoakTogether(t *testing.T) {
	t.Run("two servers", func(t *testing.T) {
		a, b := pairOfServers(t)
		useTogether(t, 2*time.Minute, a, b)
	})
	t.Run(harness.Raft, func(t *testing.T) {
		useTogether(t, 2*time.Minute, fixtures.StartLocket(t, harness.Embedded(t)))
	})
}
