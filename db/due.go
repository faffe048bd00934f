package db

import (
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Sooner returns the earlier one of two times; 0 means never. Engines compute Overdue.Next with it.
func Sooner(a, b claim.Time) claim.Time {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// LookAt returns Overdue.Next for a lease with this deadline: the deadline; or, if it has passed, the deadline
// and idle, because Due would have returned the resource already if claims waited for it.
func LookAt(deadline, now claim.Time, idle time.Duration) claim.Time {
	if deadline <= now {
		return deadline.Add(idle)
	}
	return deadline
}
