// Package robustness_test kills servers and databases and cuts the network. It checks that nothing that was acknowledged is lost, and that
// the recorded histories comply with the rules.
package robustness_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(clientEnv); address != "" {
		if err := holdBySession(address); err != nil {
			fmt.Println(err)
		}
		return
	}
	harness.Run(m)
}
