//go:build soak

package dbtest_test

import (
	"testing"
	"testing/synctest"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
)

// TestSoundSoak: what has the faults passes the suite without them.
func TestSoundSoak(t *testing.T) {
	for _, c := range dbtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if failure := record(t, c, opener(func(s db.Store) db.Store { return &broken{Store: s} })); failure != "" {
					t.Error(failure)
				}
			})
		})
	}
}

// TestFaultsSoak: every case beside a fault notices it.
func TestFaultsSoak(t *testing.T) {
	notice(t, func(cases []string) []string { return cases })
}
