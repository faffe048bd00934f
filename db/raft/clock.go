package raft

import (
	"sync"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// leaseClock is lease time. It is a counter in the state: each record has it, and from one to the next it goes on as
// time does on this machine's monotonic clock, and by db.MaxSilence at most. So no time counts in which nothing could
// be committed, and no step of any clock.
type leaseClock struct {
	opened time.Time

	mu   sync.Mutex
	base claim.Time // at the last record
	at   time.Time
}

func wallTime() claim.Time { return claim.Time(time.Now().UnixMicro()) }

// start begins where the state stands: no time has passed since its last record.
func (c *leaseClock) start(lease claim.Time) {
	c.opened = time.Now()
	c.recorded(lease, c.opened)
}

// recorded notes a record that was decided at a moment.
func (c *leaseClock) recorded(lease claim.Time, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at = lease, at
}

// last returns lease time at the last record.
func (c *leaseClock) last() claim.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base
}

// now returns lease time at a moment.
func (c *leaseClock) now(at time.Time) claim.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base.Add(min(max(0, at.Sub(c.at)), db.MaxSilence))
}

// instant returns what time it is.
func (c *leaseClock) instant() claim.Instant {
	return claim.Instant{Wall: wallTime(), Lease: c.now(time.Now())}
}

// outage returns how much time has not counted at the last record.
func (c *leaseClock) outage() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return claim.Time(c.opened.UnixMicro()).Add(c.at.Sub(c.opened)).Sub(c.base)
}
