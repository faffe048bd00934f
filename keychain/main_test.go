package keychain

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/locket-service/locket/fixtures"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/locket-service/locket/fixtures.keepThread"), goleak.Cleanup(func(code int) {
		fixtures.Shutdown()
		os.Exit(code)
	}))
}
