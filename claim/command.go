package claim

import (
	"bytes"
	"time"
)

// Command is one request to a queue.
type Command interface {
	// Target returns what must be read for the command: the resource by its name,
	// or, where that is empty, by one of its claims. A claim that the command names
	// is to be added to its queue if there is such a claim.
	Target() (resource, id string)
	// apply carries the command out on a queue in which nobody waits for a holder
	// that is due. It returns the claim that the command is about.
	apply(q *Queue, now Instant) (*Claim, error)
}

// Do carries out one command and then grants what can be granted. The claim that it
// returns is a copy. When Err is set afterwards the result means nothing.
//
// An error is an answer too: a lease that ran out while others wait has been passed
// on even when the command itself was refused.
func (q *Queue) Do(cmd Command, now Instant) (Claim, error) {
	if q.Waiting > 0 {
		q.expire(now)
		q.settle(now)
	}
	c, err := cmd.apply(q, now)
	q.settle(now)
	if err != nil {
		return Claim{}, err
	}
	if c == nil {
		return Claim{}, nil
	}
	return *c, nil
}

// Create puts a claim into the queue. Repeated with the same id it returns the claim
// that the first attempt made.
type Create struct {
	// ID is new, or that of the first attempt.
	ID              string
	Resource, Owner string
	Mode            Mode
	Type            Type
	TTL             time.Duration
	UserData        []byte
	Value           string
}

// Target implements Command.
func (cmd Create) Target() (resource, id string) { return cmd.Resource, cmd.ID }

func (cmd Create) apply(q *Queue, now Instant) (*Claim, error) {
	if first := q.Find(cmd.ID); first != nil {
		if !cmd.Made(first) {
			return nil, ErrIDTaken
		}
		return first, nil
	}
	q.expire(now)
	c := &Claim{
		ID: cmd.ID, Resource: cmd.Resource, Owner: cmd.Owner, Mode: cmd.Mode, Type: cmd.Type,
		TTL: cmd.TTL, UserData: cmd.UserData, Value: cmd.Value,
	}
	q.join(c, now)
	return c, nil
}

// Made reports whether the claim is one that this very request would have made. What
// a renewal may have changed since is not looked at.
func (cmd Create) Made(c *Claim) bool {
	return c.ID == cmd.ID && c.Resource == cmd.Resource && c.Owner == cmd.Owner &&
		c.Mode == cmd.Mode && bytes.Equal(c.UserData, cmd.UserData)
}

// Acquire takes a resource exclusively for an owner, or renews the owner's hold on
// it. It never waits (seed 5, Lock).
type Acquire struct {
	// ID is the id of the new claim; not used when the owner holds the resource.
	ID              string
	Resource, Owner string
	Type            Type
	TTL             time.Duration
	Value           string
	// Token, unless it is 0, is that of the only grant to renew. Nothing is then
	// acquired: if this grant is over the answer is ErrNotFound, or a CollisionError
	// when somebody else holds the resource, even if that lease is due.
	Token uint64
}

// Target implements Command.
func (cmd Acquire) Target() (resource, id string) { return cmd.Resource, "" }

func (cmd Acquire) apply(q *Queue, now Instant) (*Claim, error) {
	h, err := q.held(cmd.Owner, cmd.Token)
	switch {
	case err == nil:
		q.bump(h, now)
		h.TTL, h.Type, h.Value = cmd.TTL, cmd.Type, cmd.Value
		h.Deadline = now.Lease.Add(cmd.TTL)
		return h, nil
	case cmd.Token != 0:
		return nil, err
	}
	q.expire(now)
	if !q.Free() || q.Waiting > 0 {
		return nil, q.collision()
	}
	c := &Claim{
		ID: cmd.ID, Resource: cmd.Resource, Owner: cmd.Owner, Type: cmd.Type,
		TTL: cmd.TTL, Value: cmd.Value,
	}
	q.join(c, now)
	return c, nil
}

// held returns the exclusive hold of an owner. The token, unless it is 0, is that of the
// only grant that will do.
func (q *Queue) held(owner string, token uint64) (*Claim, error) {
	h := q.ExclusiveHolder()
	switch {
	case q.Free():
		return nil, ErrNotFound
	case h == nil || h.Owner != owner:
		return nil, q.collision()
	case token != 0 && h.Token != token:
		return nil, ErrNotFound
	}
	return h, nil
}

func (q *Queue) collision() error {
	holder := q.ExclusiveHolder()
	if holder != nil {
		copied := *holder
		holder = &copied
	}
	return &CollisionError{Holder: holder}
}

// Release ends an owner's exclusive hold on a resource (seed 5, Release).
type Release struct {
	Resource, Owner string
	// Token, unless it is 0, is that of the only grant to release.
	Token uint64
}

// Target implements Command.
func (cmd Release) Target() (resource, id string) { return cmd.Resource, "" }

func (cmd Release) apply(q *Queue, now Instant) (*Claim, error) {
	h, err := q.held(cmd.Owner, cmd.Token)
	if err != nil {
		return nil, err
	}
	q.finish(h, Released, "", now)
	return h, nil
}

// Renew gives an active claim a new TTL, from now on.
type Renew struct {
	ID  string
	TTL time.Duration
}

// Target implements Command.
func (cmd Renew) Target() (resource, id string) { return "", cmd.ID }

func (cmd Renew) apply(q *Queue, now Instant) (*Claim, error) {
	c := q.Find(cmd.ID)
	if c == nil {
		return nil, ErrNotFound
	}
	if c.Status != Active {
		return nil, &TransitionError{From: c.Status}
	}
	q.bump(c, now)
	c.TTL = cmd.TTL
	c.Deadline = now.Lease.Add(cmd.TTL)
	return c, nil
}

// Activate asks whether a claim is active by now. Claims are granted by the rules
// alone, so it changes nothing, except that an active claim gets a new TTL if one is
// given (seed 1, refresh).
type Activate struct {
	ID string
	// TTL is nil to leave the deadline alone.
	TTL *time.Duration
}

// Target implements Command.
func (cmd Activate) Target() (resource, id string) { return "", cmd.ID }

func (cmd Activate) apply(q *Queue, now Instant) (*Claim, error) {
	c := q.Find(cmd.ID)
	switch {
	case c == nil:
		return nil, ErrNotFound
	case c.Status == Waiting:
		return nil, ErrContention
	case c.Status != Active:
		return nil, &TransitionError{From: c.Status, To: Active}
	case cmd.TTL != nil:
		return Renew{ID: cmd.ID, TTL: *cmd.TTL}.apply(q, now)
	}
	return c, nil
}

// End moves a claim to a final status. Repeating the status that it has is no error.
type End struct {
	ID string
	// Status is Released, Aborted, Withdrawn or Revoked.
	Status Status
	Reason string
}

// Target implements Command.
func (cmd End) Target() (resource, id string) { return "", cmd.ID }

func (cmd End) apply(q *Queue, now Instant) (*Claim, error) {
	c := q.Find(cmd.ID)
	switch {
	case c == nil:
		return nil, ErrNotFound
	case c.Status == cmd.Status && c.Status.Final():
		return c, nil
	case !c.Status.mayEnd(cmd.Status):
		return nil, &TransitionError{From: c.Status, To: cmd.Status}
	}
	q.finish(c, cmd.Status, cmd.Reason, now)
	return c, nil
}

// GiveUp ends a claim in the way that its status allows: an active claim is released, a
// waiting one withdrawn. A claim that is final already stays as it is, which is no error.
type GiveUp struct {
	ID     string
	Reason string
}

// Target implements Command.
func (cmd GiveUp) Target() (resource, id string) { return "", cmd.ID }

func (cmd GiveUp) apply(q *Queue, now Instant) (*Claim, error) {
	c := q.Find(cmd.ID)
	switch {
	case c == nil:
		return nil, ErrNotFound
	case c.Status == Active:
		q.finish(c, Released, cmd.Reason, now)
	case c.Status == Waiting:
		q.finish(c, Withdrawn, cmd.Reason, now)
	}
	return c, nil
}

// Expire ends the holders of a resource that are due, as the sweep does. It returns
// no claim.
type Expire struct {
	Resource string
}

// Target implements Command.
func (cmd Expire) Target() (resource, id string) { return cmd.Resource, "" }

//nolint:unparam // the sweep is about a resource, not about one claim
func (cmd Expire) apply(q *Queue, now Instant) (*Claim, error) {
	q.expire(now)
	return nil, nil
}
