package db

import (
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// SoonerDue is how engines work out NextDue from deadlines, one after the other: of the time that
// they have by now, 0 for none, and the time at which a lease with this deadline is to be looked
// at, it returns the sooner one. A lease that has run out is left alone for idle; if claims waited
// for it, Due would have returned it.
func SoonerDue(next, deadline, now claim.Time, idle time.Duration) claim.Time {
	if deadline <= now {
		deadline = deadline.Add(idle)
	}
	if next == 0 {
		return deadline
	}
	return min(next, deadline)
}
