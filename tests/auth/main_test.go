// Package auth_test checks who may do what at a running server, over gRPC and REST.
package auth_test

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
)

func TestMain(m *testing.M) {
	m.Run()
	fixtures.Shutdown()
}
