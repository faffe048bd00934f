// Package auth_test tests authentication and authorization at a running server, over gRPC and REST.
package auth_test

import (
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

// atEnd, if it is set, is called after all tests.
var atEnd []func()

func TestMain(m *testing.M) {
	defer func() {
		for _, end := range atEnd {
			end()
		}
	}()
	harness.Run(m)
}
