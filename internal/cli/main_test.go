package cli

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
)

func TestMain(m *testing.M) {
	m.Run()
	fixtures.Shutdown()
}
