package upkeep

import (
	"math"
	"sync"
	"time"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
)

// alarm wakes a Sweeper at the earliest deadline, which may be added while it sleeps.
type alarm struct {
	mu       sync.Mutex
	soonest  claim.Time    // of the deadlines known to it, in lease time
	advanced chan struct{} // full when soonest has become less
}

// never is later than any deadline.
const never = claim.Time(math.MaxInt64)

func newAlarm() *alarm { return &alarm{soonest: never, advanced: make(chan struct{}, 1)} }

// reset forgets all deadlines.
func (a *alarm) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.soonest = never
}

// advance adds a deadline.
func (a *alarm) advance(to claim.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if to >= a.soonest {
		return
	}
	a.soonest = to
	periodic.Wake(a.advanced)
}

// wait returns at the earliest deadline, which may change meanwhile, or when done is closed; not before least has
// passed, and not after most, unless the next wait would then be too long for the deadline. now is the lease time.
func (a *alarm) wait(done <-chan struct{}, now claim.Time, least, most time.Duration) {
	begin := time.Now()
	for {
		left := a.pause(now, least, most) - time.Since(begin)
		if left <= 0 {
			return
		}
		select {
		case <-time.After(left):
			return
		case <-a.advanced:
		case <-done:
			return
		}
	}
}

func (a *alarm) pause(now claim.Time, least, most time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.soonest >= now.Add(most+least) {
		return most
	}
	return max(least, a.soonest.Sub(now))
}
