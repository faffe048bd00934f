package cli

import (
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) { harness.Run(m) }
