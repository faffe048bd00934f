package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestLeaseTimeOfAnotherDecider: a server that decides again continues with the lease time that the decider before it
// recorded, not with its own count in memory from when it decided before. Otherwise leases renewed in the meantime would
// end early.
func TestLeaseTimeOfAnotherDecider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const recorded = claim.Time(1e15)
		clock := leaseClock{wall: time.Now}
		clock.start(recorded)
		for range 16 {
			time.Sleep(db.BeatInterval)
			clock.tick(time.Now())
		}
		renewed := recorded.Add(time.Second) // by another decider, for 10 s
		due := renewed.Add(10 * time.Second)
		clock.start(renewed)
		begin := time.Now()
		for clock.last() < due {
			time.Sleep(db.BeatInterval)
			clock.tick(time.Now())
		}
		if lasted := time.Since(begin); lasted < 10*time.Second {
			t.Errorf("the lease has ended %v after it was renewed", lasted)
		}
	})
}
