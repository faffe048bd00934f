package replica

import (
	"sync"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// leaseClock is lease time. It is a counter in the state: each record has it, as the server that decided it has counted.
// It goes on from tick to tick as time does on this machine's monotonic clock, and by db.MaxSilence at most. There is no
// tick while a record is on its way. So time while this process did not run, or nothing could be committed, does not
// count, nor does any step of a clock. Time since the last record is lost when the process ends: leases end that much later.
type leaseClock struct {
	wall func() time.Time // for labels alone

	mu     sync.Mutex
	opened time.Time
	began  claim.Time // then
	base   claim.Time // at the last tick
	at     time.Time
	least  claim.Time // of the last record
	// written is when the last record was decided.
	written time.Time
}

func (c *leaseClock) wallTime() claim.Time { return claim.Time(c.wall().UnixMicro()) }

// start begins at the time in the state: no time has passed since its last record. Time that this server has counted
// beyond a record, when it decided before, was unknown to later deciders: it would end the leases that they have granted or
// renewed too early.
func (c *leaseClock) start(lease claim.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened, c.began = time.Now(), lease
	c.base, c.at, c.written, c.least = lease, c.opened, c.opened, lease
}

// beginning returns where it began.
func (c *leaseClock) beginning() claim.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began
}

// recorded notes a record that was decided at a moment, or before it by another server.
func (c *leaseClock) recorded(lease claim.Time, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.at) {
		c.base, c.at = c.until(at), at
	}
	c.base, c.written, c.least = max(c.base, lease), at, lease
}

// told notes what the decider has answered when it was asked for lease time at a moment. Between these answers a server counts by
// itself. So its time may be later than the decider's, but is not earlier, and nobody learns of more lease time than is left.
func (c *leaseClock) told(lease claim.Time, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at = max(lease, c.least), asked
}

// tick counts the time since the last tick, and skip does not count it.
func (c *leaseClock) tick(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at = c.until(at), at
}

// skip is described with tick.
func (c *leaseClock) skip(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

// sinceRecord returns how much time has passed since the last record.
func (c *leaseClock) sinceRecord(at time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Sub(c.written)
}

// sinceTick returns how much time has passed since the last tick.
func (c *leaseClock) sinceTick() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.at)
}

// last returns lease time at the last tick.
func (c *leaseClock) last() claim.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base
}

// now returns lease time at a moment.
func (c *leaseClock) now(at time.Time) claim.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until(at)
}

func (c *leaseClock) until(at time.Time) claim.Time {
	return c.base.Add(min(max(0, at.Sub(c.at)), db.MaxSilence))
}

// instant returns the current time.
func (c *leaseClock) instant() claim.Instant {
	return claim.Instant{Wall: c.wallTime(), Lease: c.now(time.Now())}
}

// outage returns how much time has not counted at the last tick.
func (c *leaseClock) outage() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return claim.Time(c.opened.UnixMicro()).Add(c.at.Sub(c.opened)).Sub(c.base)
}
