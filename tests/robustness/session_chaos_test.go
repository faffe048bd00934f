//go:build chaos

package robustness_test

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// This is TestSessionsDisturbed for a longer time.
func TestChaosSessions(t *testing.T) {
	t.Run("two servers", func(t *testing.T) {
		t.Parallel()
		disturbSessions(t, "mysql:"+fixtures.MySQL(t), 10, 2, 18)
	})
	t.Run(harness.EngineEmbedded, func(t *testing.T) {
		t.Parallel()
		disturbSessions(t, harness.Embedded(t), 10, 1, 12)
	})
}
