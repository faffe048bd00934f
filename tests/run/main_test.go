// Package run_test checks `locket run` as a process: status, signals, terminal, loss of the lock.
package run_test

import (
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) { harness.Run(m) }
