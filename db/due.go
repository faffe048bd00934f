package db

import (
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// Sooner returns the sooner one of two times; 0 means never. Engines work out NextDue with it.
func Sooner(a, b claim.Time) claim.Time {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// LookAt returns when NextDue is to have a lease with this deadline looked at: at its deadline. One that
// has run out is left alone for idle; if claims waited for it, Due would have returned it.
func LookAt(deadline, now claim.Time, idle time.Duration) claim.Time {
	if deadline <= now {
		return deadline.Add(idle)
	}
	return deadline
}
