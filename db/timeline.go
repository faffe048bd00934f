package db

import (
	"sync"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// TimelineSkew is added to each deadline where servers may disagree about the time: on a cluster of databases, and on
// one database after its clock has stepped, since each server detects and measures a step by itself. Each server
// follows the fastest timeline, which it reads at every beat of the others; it is behind it by at most the time of a
// beat and two readings.
const TimelineSkew = 300 * time.Millisecond

// Timeline is a server's view of the database's clock, without its steps: it compares the database's clock with the
// server's own monotonic clock. A step, or a connection to another node whose clock differs, changes the offset between
// the two, and not the time that lease time is computed from. So no step ends a lease early, however small it is.
//
// All servers of a database use one timeline. A server that starts adopts the others' (Join). A server that is behind
// another catches up: its machine was suspended, or its node's clock is slower.
//
// It is safe for concurrent use. The zero value has no offset.
type Timeline struct {
	mu      sync.Mutex
	anchor  reading       // what readings are compared with
	offset  time.Duration // of this timeline from the database's clock
	steps   int
	started bool
}

// reading is one reading of the database's clock, in the timeline's time.
type reading struct {
	at             claim.Time
	sent, received time.Time // by the server's monotonic clock
}

func (r reading) width() time.Duration { return r.received.Sub(r.sent) }

// Read returns the time of the timeline for a reading of the database's clock: never later than it was when the answer came,
// however the clock has stepped. The question was sent, and its answer received,
// at two moments of the server's clock; seen is the last beat of any server (Clock.Seen).
func (l *Timeline) Read(now, seen claim.Time, sent, received time.Time) (at claim.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at = now.Add(l.offset)
	var rate time.Duration // what the two clocks may differ by since the anchor: a thousandth, and a little
	if !l.anchor.received.IsZero() {
		rate = received.Sub(l.anchor.sent)/1000 + time.Millisecond
		least := l.anchor.at.Add(sent.Sub(l.anchor.received) - rate)
		most := l.anchor.at.Add(received.Sub(l.anchor.sent) + rate)
		if fits := min(max(at, least), most); fits != at { // a step
			l.offset += fits.Sub(at)
			l.steps++
			at = fits
		}
	}
	next := reading{at, sent, received}
	// Another server may have beaten after the database took the time of this reading, and before it read the row.
	if behind := seen.Sub(at) - next.width(); l.started && behind > 0 {
		l.offset += behind
		next.at, l.anchor = at.Add(behind), reading{}
	}
	if l.anchor.received.IsZero() || next.width() <= l.anchor.width()+rate {
		l.anchor = next
	}
	return next.at
}

// Join adopts the timeline of the other servers: one of them has beaten, at seen, between two
// readings of the database's clock. From Join or Start on, the timeline catches up with
// the others.
func (l *Timeline) Join(seen, before, after claim.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case seen < before:
		l.offset = seen.Sub(before)
	case seen > after:
		l.offset = seen.Sub(after)
	default:
		l.offset = 0
	}
	l.anchor, l.started = reading{}, true
}

// Start begins a timeline when there are no other servers.
func (l *Timeline) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = true
}

// Shift returns the offset of the timeline from the database's clock, and how many steps of
// that clock it has seen.
func (l *Timeline) Shift() (offset time.Duration, steps int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.offset, l.steps
}

// Skew returns how much later than its deadline a lease is due.
func (l *Timeline) Skew(cluster bool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cluster || l.steps > 0 || l.offset != 0 {
		return TimelineSkew
	}
	return 0
}

// ClockState is a server's knowledge of its clocks.
type ClockState struct {
	// Offset is by how much the timeline of this server is ahead of its database's clock: because that
	// clock has stepped back, or is behind the fastest one of a cluster. It is negative after a
	// step forward.
	Offset time.Duration
	// Steps is how many steps of the database's clock this server has seen.
	Steps int
	// Cluster says that the database has several nodes, whose clocks may differ by MaxSkew: each reading may be of another one.
	Cluster bool
	// Skew is how much later than its deadline a lease is due.
	Skew time.Duration
	// Outage is the sum of all time that counts against no lease, and Lease is lease time, at
	// the last reading.
	Outage time.Duration
	Lease  claim.Time
	// Beaten is the lease time of the last beat that is known.
	Beaten claim.Time
	// Quarantine is the lease time before the first grant, 0 for none.
	Quarantine claim.Time
}
