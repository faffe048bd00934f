package claim

import (
	"math"
	"slices"
	"time"
)

// Time is a moment in microseconds since the Unix epoch.
type Time int64

// Std returns t as a time.Time in UTC.
func (t Time) Std() time.Time { return time.UnixMicro(int64(t)).UTC() }

// Sub returns the duration from u to t, or the largest duration if it is longer than that.
func (t Time) Sub(u Time) time.Duration {
	if d := int64(t - u); d <= math.MaxInt64/int64(time.Microsecond) {
		return time.Duration(d) * time.Microsecond
	}
	return math.MaxInt64
}

// Add returns the time d after t, or the largest Time if it would be later than that.
func (t Time) Add(d time.Duration) Time {
	sum := t + Time(d/time.Microsecond)
	if d > 0 && sum < t {
		return math.MaxInt64
	}
	return sum
}

// Instant is one reading of the database's two clocks.
type Instant struct {
	// Wall is the database's clock.
	Wall Time
	// Lease is lease time. It stands still while no server can commit renewals, so that no lease runs out because of an
	// outage.
	Lease Time
	// Skew is how much later than its deadline a lease is due, because the servers' readings
	// of Lease may differ by that much.
	Skew time.Duration
	// Quarantine is the lease time before the first grant, 0 for none. The store was restored from a backup: a
	// claim that was granted after the backup was taken may still be held.
	Quarantine Time
}

// Quarantined reports whether claims are not granted yet.
func (i Instant) Quarantined() bool { return i.Lease < i.Quarantine }

// DueBefore returns the last deadline that is due. During a quarantine none is: a claim that was renewed after the
// backup was taken has a later deadline, which is not known, and nothing would be granted anyway.
func (i Instant) DueBefore() Time {
	if i.Quarantined() {
		return -1
	}
	return i.Lease.Add(-i.Skew)
}

// MaxBrief is how many bytes of UserData, and of Value, are read of a claim that no command needs whole.
const MaxBrief = 4096

// Claim is an owner's interest in a resource. The queues never change a claim that they
// have handed out: see Transition.
type Claim struct {
	// ID names the claim, for all time.
	ID string
	// Resource is the name of the claimed resource.
	Resource string
	// Owner names the claiming party; it may be empty.
	Owner string
	// Identity is who the caller that made the claim was authenticated as, "" if nobody asked.
	Identity string
	// Units is how many units of the resource it takes.
	Units Units
	Type  Type
	// TTL is how long the claim is held without being renewed. It is not used for a claim with a Session.
	TTL time.Duration
	// Session is the session that the claim is bound to, "" for none. Such a claim has no
	// deadline: it ends with its session.
	Session string
	// WaitTTL is how long the claim may wait without anybody asking about it, 0 for ever.
	WaitTTL time.Duration
	// AllowDeadlock is set if the claim may wait in a deadlock: it is never aborted to end one.
	AllowDeadlock bool
	// UserData is JSON that the client stored with the claim, nil for none.
	UserData []byte
	// Value is the metadata of a lock (the value of a Resource in Cloud Foundry's Locket).
	Value string
	// Brief is set if UserData or Value was left out when the claim was read, because it is longer than MaxBrief.
	Brief bool
	// NewValue is set if a renewal has set the Value of a Brief claim since the claim was read.
	NewValue bool

	Status Status
	// Enqueued orders the claims of a resource: the resource's version when the claim
	// was made. The place in the queue, 1 for the next, is counted from it.
	Enqueued uint64
	// Token is the fencing token: the resource's version when the claim was
	// granted, 0 before.
	Token uint64
	// Version is the resource's version at the last change of the claim.
	Version uint64
	// Deadline is when the lease of an active claim runs out, or a waiting claim with a WaitTTL will be aborted, in
	// lease time. It is 0 for a waiting claim without a WaitTTL, and Forever for an active claim with a Session.
	Deadline Time
	// Created, Activated and Finished are when the claim got its first status, became active and ended, by the
	// database's clock; 0 for never.
	Created, Activated, Finished Time
	// Reason is why the claim was ended, as given by the party that ended it.
	Reason string
	// EndedBy is the identity that ended the claim. It is "" if it is not known, or if the claim expired or was
	// abandoned.
	EndedBy string
}

// Due reports whether the claim is active and its lease has run out.
func (c *Claim) Due(now Instant) bool {
	return c.Status == Active && c.Deadline <= now.DueBefore()
}

// Abandoned reports whether the claim waits and nobody has asked about it for its WaitTTL.
func (c *Claim) Abandoned(now Instant) bool {
	return c.Status == Waiting && c.Deadline != 0 && c.Deadline <= now.DueBefore()
}

// ToKeep reports whether the claim waits and an eighth of its WaitTTL has passed. A question about it then extends
// its wait (KeepWaiting). Earlier questions do not, so that few of them cause a write.
func (c *Claim) ToKeep(now Instant) bool {
	return c.Status == Waiting && c.Deadline != 0 && c.Deadline.Sub(now.Lease) <= c.WaitTTL-c.WaitTTL/8
}

// StatusChange is one entry of a claim's history.
type StatusChange struct {
	Status Status
	At     Time
}

// History returns every status that the claim has had, oldest first. Waiting comes
// first even when the claim was active at once.
func (c *Claim) History() []StatusChange {
	history := append(make([]StatusChange, 0, 3), StatusChange{Waiting, c.Created})
	if c.Activated != 0 {
		history = append(history, StatusChange{Active, c.Activated})
	}
	if c.Status.Final() {
		history = append(history, StatusChange{c.Status, c.Finished})
	}
	return history
}

// WaitingDuration is how long the claim has waited; it stops when the claim is
// active or final, and is never negative, even if the clock stepped back.
func (c *Claim) WaitingDuration(now Instant) time.Duration {
	switch {
	case c.Activated != 0:
		return max(0, c.Activated.Sub(c.Created))
	case c.Status.Final():
		return max(0, c.Finished.Sub(c.Created))
	default:
		return max(0, now.Wall.Sub(c.Created))
	}
}

// ActiveDuration is how long the claim has been active, and whether it ever was; it
// stops when the claim is final, and is never negative.
func (c *Claim) ActiveDuration(now Instant) (time.Duration, bool) {
	switch {
	case c.Activated == 0:
		return 0, false
	case c.Status.Final():
		return max(0, c.Finished.Sub(c.Activated)), true
	default:
		return max(0, now.Wall.Sub(c.Activated)), true
	}
}

// Remaining is the time until the lease of an active claim runs out, never negative. For a claim with a Session it is
// the longest duration.
func (c *Claim) Remaining(now Instant) time.Duration {
	return max(0, c.Deadline.Sub(now.Lease))
}

// Count is how many live claims there are of something.
type Count struct{ Active, Waiting int }

// Add counts what a transition changes.
func (c *Count) Add(t Transition) {
	if t.Before != nil {
		c.add(t.Before.Status, -1)
	}
	c.add(t.After.Status, 1)
}

// Without returns the count without one claim of a status.
func (c Count) Without(s Status) Count {
	c.add(s, -1)
	return c
}

func (c *Count) add(s Status, n int) {
	switch s {
	case Active:
		c.Active += n
	case Waiting:
		c.Waiting += n
	}
}

// OwnerKey identifies an owner in the search for deadlocks: a session, or the owner of claims without one. Two
// claims with one key cause no deadlock between them. The zero OwnerKey identifies nobody.
type OwnerKey struct{ Session, Owner string }

// OwnerKey returns the session of a claim or, without one, its owner, which may be empty.
func (c *Claim) OwnerKey() OwnerKey {
	if c.Session != "" {
		return OwnerKey{Session: c.Session}
	}
	return OwnerKey{Owner: c.Owner}
}

// Transition is one change of one claim. The store, other servers, waiting calls and metrics learn what a command did
// from a list of transitions, in the order of the changes. Neither claim changes afterwards.
type Transition struct {
	// Before is the claim before the change, nil if the change made it.
	Before *Claim
	// After is the claim after the change.
	After *Claim
}

// StoppedWaiting reports whether the claim stopped waiting, by a grant or by its end.
func (t Transition) StoppedWaiting() bool {
	return t.Before != nil && t.Before.Status == Waiting && t.After.Status != Waiting
}

// SetsValue reports whether the Value of a claim that existed before must be stored: it differs, or a renewal has set
// it without reading the old one.
func (t Transition) SetsValue() bool {
	return t.Before.Value != t.After.Value || t.Before.NewValue != t.After.NewValue
}

// Net reduces transitions to one for each claim, from before its first change to after its last, in the order of the
// last changes. So the versions of a resource rise.
func Net(transitions []Transition) []Transition {
	net := make([]Transition, 0, len(transitions))
	at := make(map[*Claim]int, len(transitions)) // by After
	for _, t := range transitions {
		if i, again := at[t.Before]; again {
			t.Before = net[i].Before
			net[i] = Transition{}
		}
		at[t.After] = len(net)
		net = append(net, t)
	}
	return slices.DeleteFunc(net, func(t Transition) bool { return t == Transition{} })
}
