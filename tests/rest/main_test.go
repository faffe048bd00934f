// Package rest_test checks the HTTP interface of a running server, sentence by sentence: the subtests
// are named after the sentences of the contract.
package rest_test

import (
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) { harness.Run(m) }
