// Package program_test checks the program from outside: the server as a process, `locket keychain`
// and its clients, the examples, and the documents.
package program_test

import (
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) {
	harness.Run(m)
	removeStubs()
}
