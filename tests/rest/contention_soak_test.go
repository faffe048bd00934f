//go:build soak

package rest_test

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
)

// TestSoakRESTLongLine is TestRESTLongLine on MySQL.
func TestSoakRESTLongLine(t *testing.T) { longLine(t, "mysql:"+fixtures.MySQL(t)) }
