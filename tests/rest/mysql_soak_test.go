//go:build soak

package rest_test

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
)

// TestSoakRESTLongLine is TestRESTLongLine on MySQL.
func TestSoakRESTLongLine(t *testing.T) { longLine(t, "mysql:"+fixtures.MySQL(t)) }

// TestSoakRESTContract is TestRESTContract on MySQL.
func TestSoakRESTContract(t *testing.T) { holdsContract(t, "mysql:"+fixtures.MySQL(t)) }

// TestSoakRESTMatrix is TestRESTMatrix on MySQL.
func TestSoakRESTMatrix(t *testing.T) { holdsMatrix(t, "mysql:"+fixtures.MySQL(t)) }

// TestSoakRESTUserData is TestRESTUserData on MySQL.
func TestSoakRESTUserData(t *testing.T) { allComeBack(t, "mysql:"+fixtures.MySQL(t)) }
