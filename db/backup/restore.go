package backup

import (
	"fmt"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Options say how a restore is done.
type Options struct {
	// Quarantine is how long nothing is granted; nil for the longest known TTL.
	RevokeAll bool
	// Quarantine is for how long nobody is granted anything; nil for the longest TTL that is known.
	Quarantine *time.Duration
	// Now is the time of the restore.
	Now claim.Time
	// Floor is a version: all later tokens exceed it. 0 leaves the floor to the backup and Now.
	Floor uint64
}

const (
	// LeastQuarantine is how long a quarantine is at least, unless the options say so: a TTL that nobody has used before the
	// backup was taken may have been used since.
	LeastQuarantine = time.Minute
	// MostQuarantine is the longest quarantine that a restore makes unless the options ask for a longer one.
	MostQuarantine = 24 * time.Hour
	// margin is added to the highest version that may have been given, against differences between two clocks.
	margin = 24 * time.Hour
	// mostFloor is the highest Floor: clients in JavaScript have no larger integers.
	mostFloor = 1 << 53
	// ReasonRestored is the reason in claims that a restore has revoked.
	ReasonRestored = "the database was restored from a backup, with --revoke-all"
)

// LongQuarantineError is returned when a quarantine would be longer than MostQuarantine.
type LongQuarantineError struct {
	Longest time.Duration
}

func (e *LongQuarantineError) Error() string {
	return fmt.Sprintf("the longest TTL in the backup is %v, and nobody would be granted anything for so long; say how long with --quarantine, or end all claims with --revoke-all", e.Longest)
}

// ClockError is returned for a restore while the clock is behind the backup: tokens that were given since may be higher than any that follows from the
// two.
type ClockError struct{ Now, Taken claim.Time }

func (e *ClockError) Error() string {
	return fmt.Sprintf("the clock of this machine says %s, which is %v behind the backup: set it right, or name with --floor a number that all new fencing tokens must exceed",
		e.Now.Std().Format(time.RFC3339), e.Taken.Sub(e.Now))
}

// FloorError is returned for a Floor that is not plausible.
type FloorError struct {
	Floor uint64
	Taken claim.Time
}

func (e *FloorError) Error() string {
	if e.Floor > mostFloor {
		return fmt.Sprintf("the floor %d is higher than %d", e.Floor, uint64(mostFloor))
	}
	return fmt.Sprintf("the floor %d is not above the time of the backup, %d: tokens are microseconds since 1970 or more", e.Floor, e.Taken)
}

// Restored returns a sink that gives another one the contents of the restored store.
//
// Nobody knows what happened after the backup: claims were granted, renewed and ended. All resources, even ones missing
// in the backup, get versions above every fencing token given since. Leases and sessions start again with their full
// TTL: a client that still holds one renews it, and the others run out. Until every lease that may have been given
// since has run out there is a quarantine: nothing is granted.
func Restored(to Sink, o Options) Sink { return &restored{to: to, options: o} }

type restored struct {
	to      Sink
	options Options
	head    Head
	floor   uint64
	longest time.Duration
}

// Floor returns a version above all that may have been given by now, where one version is known to have been.
func Floor(now claim.Time, known uint64) uint64 {
	return max(uint64(max(0, now)), known) + uint64(margin.Microseconds())
}

// raise returns a version above any that may have followed version since the backup was taken: versions follow the
// clock, or rise by 1 where they are ahead of it.
func (r *restored) raise(version uint64) uint64 {
	passed := uint64(max(0, r.options.Now.Sub(r.head.Taken)).Microseconds())
	return max(Floor(r.options.Now, version+passed), r.options.Floor)
}

// Begin implements Sink.
func (r *restored) Begin(h Head) error {
	switch floor := r.options.Floor; {
	case floor == 0 && r.options.Now < h.Taken:
		return &ClockError{r.options.Now, h.Taken}
	case floor != 0 && (floor <= uint64(max(0, h.Taken)) || floor > mostFloor):
		return &FloorError{floor, h.Taken}
	}
	r.head, r.floor = h, 0
	return r.to.Begin(h)
}

func (r *restored) sawTTL(ttl time.Duration) { r.longest = max(r.longest, ttl) }

func (r *restored) Claim(c *claim.Claim) error {
	after := *c
	if c.Session == "" {
		r.sawTTL(c.TTL)
	}
	switch {
	case r.options.RevokeAll:
		after.Status, after.Finished, after.Reason = claim.Revoked, r.options.Now, ReasonRestored
		after.Version++
		return r.to.Ended(&after)
	case c.Status == claim.Active && c.Session == "":
		after.Deadline = r.head.Lease.Add(c.TTL)
	case c.Status == claim.Waiting && c.WaitTTL > 0:
		after.Deadline = r.head.Lease.Add(c.WaitTTL)
	}
	return r.to.Claim(&after)
}

// Session implements Sink. A session is attached to no server, and may be resumed for its TTL. One that was ending cannot be resumed, and goes on to
// end at once.
func (r *restored) Session(s *claim.Session) error {
	r.sawTTL(s.TTL)
	if r.options.RevokeAll {
		return nil
	}
	after := *s
	after.Server, after.Attached, after.Deadline = "", 0, r.head.Lease.Add(s.TTL)
	if s.Ends() {
		after.Deadline = r.head.Lease
	}
	after.Version++
	return r.to.Session(&after)
}

// Server implements Sink. The servers are gone.
func (r *restored) Server(Server) error { return nil }

func (r *restored) Row(row Row) error {
	after := Row{Row: claim.Row{Resource: row.Resource, Version: r.raise(row.Version)}}
	r.floor = max(r.floor, after.Version)
	return r.to.Row(after)
}

func (r *restored) Ended(c *claim.Claim) error {
	if c.Session == "" {
		r.sawTTL(c.TTL)
	}
	return r.to.Ended(c)
}

func (r *restored) End(h Head) error {
	before := h.Quarantine
	h.Floor, h.Quarantine = max(r.floor, r.raise(h.Floor)), 0
	if !r.options.RevokeAll {
		long := max(r.longest, LeastQuarantine)
		if r.options.Quarantine != nil {
			long = *r.options.Quarantine
		} else if long > MostQuarantine {
			return &LongQuarantineError{long}
		}
		h.Quarantine = max(before, r.head.Lease.Add(long))
	}
	return r.to.End(h)
}
