// Package robustness_test kills servers and databases, cuts the network, and checks that nothing
// that was acknowledged is lost, and that the recorded histories keep the rules.
package robustness_test

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
)

func TestMain(m *testing.M) {
	m.Run()
	fixtures.Shutdown()
}
