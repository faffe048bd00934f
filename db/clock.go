package db

import (
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// BeatInterval is how often a server beats.
	BeatInterval = 250 * time.Millisecond
	// MaxSilence is the most lease time that passes from one beat to the next.
	MaxSilence = 2 * BeatInterval
)

// Clock is the database row that lease time is computed from. Deadlines are in lease time, so a change of
// the row shifts all of them at once. There is one rule: from one beat to the next, lease time advances as
// time does, and by MaxSilence at most.
//
// A beat is a commit in the tables of the claims, by any server (see Pulse): it shows that renewals could be
// committed. While none could be committed, at most MaxSilence counts; and nothing counts if a server knows that it
// could not commit: then its next beat is a Resume.
//
// All times are of a clock without steps: see Timeline.
type Clock struct {
	// Seen is the time of the last beat.
	Seen claim.Time
	// Outage is the sum of all time that does not count. Lease time is Seen less Outage, at the last
	// beat.
	Outage time.Duration
}

// Instant returns the lease time at a moment after the last beat. Its Wall is now, the time of the timeline, because
// the database's clock is not known here.
func (c Clock) Instant(now claim.Time) claim.Instant {
	lease := min(max(now, c.Seen), c.Seen.Add(MaxSilence))
	return claim.Instant{Wall: now, Lease: lease.Add(-c.Outage)}
}

// Beat returns the clock after a beat. One that comes before the last beat, because two servers read
// the time of two nodes, changes nothing.
func (c Clock) Beat(now claim.Time) Clock {
	c.Outage += max(0, now.Sub(c.Seen)-MaxSilence)
	c.Seen = max(c.Seen, now)
	return c
}

// Resume returns the clock after a beat of a server that could not commit before: none of the time
// since the last beat counts.
func (c Clock) Resume(now claim.Time) Clock {
	if c.Seen != 0 {
		c.Outage += now.Sub(c.Seen)
	}
	c.Seen = now
	return c
}
