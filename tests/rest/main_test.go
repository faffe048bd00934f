// Package rest_test checks the HTTP interface of a running server, sentence by sentence: the names of
// the subtests are those of the sentences that the contract has.
package rest_test

import (
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) { harness.Run(m) }
