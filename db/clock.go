package db

import (
	"time"

	"github.com/locket-service/locket/claim"
)

const (
	// BeatInterval is how often a server that can commit says so.
	BeatInterval = 250 * time.Millisecond
	// MaxSilence is the longest time between two beats of the servers, taken
	// together, that still counts as service. Anything longer is an outage.
	MaxSilence = 2 * BeatInterval
)

// Clock is the row that live servers keep fresh. From it comes lease time, which runs with
// the database's clock while there is a server to take renewals and stands still otherwise.
// Deadlines are kept in lease time, so an outage moves all of them at once. A step of the
// database's clock by more than MaxSilence is treated as an outage.
type Clock struct {
	// Seen is the time of the last beat, by the database's clock.
	Seen claim.Time
	// Outage is the sum of all time that does not count: outages, and time in which there was
	// no lease, so that no server beat. Lease time is the database's time less Outage.
	Outage time.Duration
}

// Instant returns the two times at a moment of the database's clock. Between two beats
// lease time continues for MaxSilence at most.
func (c Clock) Instant(now claim.Time) claim.Instant {
	lease := min(max(now, c.Seen), c.Seen.Add(MaxSilence))
	return claim.Instant{Wall: now, Lease: lease.Add(-c.Outage)}
}

// Beat returns the clock after a beat of a server that has been in service for a while
// without a break (see Pulse). The whole of a silence that is longer, and of a step back,
// becomes an outage; a step back of less than MaxSilence counts as the difference of two
// nodes' clocks: lease time stands still until the clock has caught up.
func (c Clock) Beat(now claim.Time, inService time.Duration) Clock {
	silence := now.Sub(c.Seen)
	if silence > max(MaxSilence, inService+BeatInterval) || silence < -MaxSilence {
		return c.Resume(now)
	}
	c.Seen = max(c.Seen, now)
	return c
}

// Resume returns the clock when a server starts service and there has been none
// since the last beat: all of the time between becomes an outage.
func (c Clock) Resume(now claim.Time) Clock {
	if c.Seen != 0 {
		c.Outage += now.Sub(c.Seen)
	}
	c.Seen = now
	return c
}
