package db

import (
	"time"

	"github.com/locket-service/locket/internal/claim"
)

const (
	// BeatInterval is how often a server beats.
	BeatInterval = 250 * time.Millisecond
	// MaxSilence is the most lease time that passes from one beat to the next.
	MaxSilence = 2 * BeatInterval
)

// Clock is the row of the database from which lease time comes. Deadlines are kept in lease time,
// so what moves it moves all of them at once. There is one rule: lease time passes from one beat to
// the next, as time does, and by MaxSilence at most.
//
// A beat is a commit in the tables of the claims, by any server (see Pulse): it shows that renewals
// could be committed. So no time counts in which none could, but for MaxSilence; and not even that where a
// server knows that it could not: then the next beat is a Resume.
//
// All times are of a clock without steps: see Timeline.
type Clock struct {
	// Seen is the time of the last beat.
	Seen claim.Time
	// Outage is the sum of all time that does not count. Lease time is Seen less Outage, at the last
	// beat.
	Outage time.Duration
}

// Instant returns the two times at a moment after the last beat, of which the database's clock is not
// known here.
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
