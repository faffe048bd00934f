package claim

import (
	"bytes"
	"errors"
	"time"

	"github.com/locket-service/locket/internal/rules/access"
)

// Command is one request. It works on the queues of its targets.
type Command interface {
	// Targets returns the parts of the state that the command needs. A transaction loads the targets of all of its
	// commands before it carries out the first.
	Targets() []Target
	// apply carries the command out. qs.targets has the queues of its Targets, in the same order; leases that had run
	// out while claims waited have been ended there. It returns the claim that the command is about, nil if there is
	// none.
	apply(qs *Queues) (*member, error)
}

// Target is one queue that a command works on: the queue of Resource or, if Resource is empty, of the claim with the
// ID. With both it is the queue of Resource; if a claim with the ID is in another queue, the command fails with
// ErrIDTaken.
//
// With a Session the target is that session. With Claims it is also the queues of its live claims, at most MaxEnds of
// them, waiting claims first; with Waiting only the queues of its waiting claims.
type Target struct {
	Resource, ID    string
	Session         string
	Claims, Waiting bool
	// Whole is set if the claim with the ID is needed with all its data (see Claim.Brief); without an ID, the
	// exclusive holder of the Resource.
	Whole bool
}

// MaxWaiting is how many claims may wait for one resource.
const MaxWaiting = 100_000

// Create puts a claim into the queue. Repeated with the same id it returns the claim
// that the first attempt made.
type Create struct {
	// ID is new, or the ID of the first attempt. With New it was made for this attempt, so no claim can have it, and
	// none is searched for.
	ID              string
	New             bool
	Resource, Owner string
	Units           Units
	Type            Type
	TTL             time.Duration
	// WaitTTL is how long the claim may wait without anybody asking about it, 0 for ever.
	WaitTTL  time.Duration
	UserData []byte
	Value    string
	// NoWait refuses a claim that would wait, with a CollisionError. A refused attempt stores nothing, so it may be
	// repeated with the same id.
	NoWait bool
	// AllowDeadlock is copied to the Claim.
	AllowDeadlock bool
	// Session is the session that the claim is bound to, "" for none. If it is not attached to Server, the command is
	// refused with ErrSessionEnded or ErrNotAttached. TTL is not used then.
	Session, Server string
}

// Targets implements Command.
func (cmd Create) Targets() []Target {
	queue := Target{Resource: cmd.Resource, ID: cmd.ID, Whole: true}
	if cmd.New {
		queue = Target{Resource: cmd.Resource}
	}
	if cmd.Session == "" {
		return []Target{queue}
	}
	return []Target{queue, {Session: cmd.Session}}
}

func (cmd Create) apply(qs *Queues) (*member, error) {
	q, now := qs.targets[0], qs.Now
	var s *session
	if cmd.Session != "" {
		var err error
		if s, err = qs.attached(cmd.Session, cmd.Server); err != nil {
			return nil, err
		}
	}
	if first := q.find(cmd.ID); first != nil {
		if !cmd.Made(first.Claim) || q.permit(toRenew, first) != nil {
			return nil, ErrIDTaken
		}
		q.keepWaiting(first, now)
		return first, nil
	}
	q.expire(now)
	if cmd.NoWait && q.status(cmd.Units) == Waiting {
		return nil, q.collision()
	}
	if cmd.NoWait && now.Quarantined() {
		return nil, ErrQuarantine
	}
	if q.Waiting >= MaxWaiting {
		return nil, ErrQueueFull
	}
	m := q.join(&Claim{
		ID: cmd.ID, Resource: cmd.Resource, Owner: cmd.Owner, Units: cmd.Units, Type: cmd.Type,
		TTL: cmd.TTL, WaitTTL: cmd.WaitTTL, AllowDeadlock: cmd.AllowDeadlock, UserData: cmd.UserData, Value: cmd.Value, Session: cmd.Session,
	}, now)
	if s != nil {
		s.renew(now)
		s.claims = append(s.claims, m.ID)
	}
	if cmd.NoWait {
		q.grant(m, now)
	}
	return m, nil
}

// Made reports whether this request would have made the claim. It does not compare what a renewal may have changed, nor
// WaitTTL. A request with NoWait has not made a claim that was never active.
func (cmd Create) Made(c *Claim) bool {
	return c.ID == cmd.ID && c.Resource == cmd.Resource && c.Owner == cmd.Owner &&
		c.Units == cmd.Units && c.Session == cmd.Session && bytes.Equal(c.UserData, cmd.UserData) && (!cmd.NoWait || c.Token != 0)
}

// Acquire takes a resource exclusively for an owner, or renews the owner's hold on
// it. It never waits (Lock of Cloud Foundry's Locket).
type Acquire struct {
	// ID is the id of the new claim; not used when the owner holds the resource.
	ID              string
	Resource, Owner string
	Type            Type
	TTL             time.Duration
	Value           string
	// Token, unless it is 0, names the grant to renew. Then nothing new is acquired: if this grant is over, the error is
	// ErrNotFound, or a CollisionError if another owner holds the resource, even if that lease has run out.
	Token uint64
}

// Targets implements Command.
func (cmd Acquire) Targets() []Target { return []Target{{Resource: cmd.Resource, Whole: true}} }

func (cmd Acquire) apply(qs *Queues) (*member, error) {
	q, now := qs.targets[0], qs.Now
	h, err := q.held(toRenew, cmd.Owner, cmd.Token)
	switch {
	case err == nil:
		renewed := q.change(h, now)
		renewed.TTL, renewed.Type, renewed.Value = cmd.TTL, cmd.Type, cmd.Value
		renewed.NewValue = renewed.Brief
		renewed.Deadline = now.Lease.Add(cmd.TTL)
		return h, nil
	case cmd.Token != 0:
		return nil, err
	}
	q.expire(now)
	var denied *access.DeniedError
	switch free := q.Free() && q.Waiting == 0; {
	case !free && errors.As(err, &denied):
		return nil, err
	case !free:
		return nil, q.collision()
	case now.Quarantined():
		return nil, ErrQuarantine
	}
	c := &Claim{
		ID: cmd.ID, Resource: cmd.Resource, Owner: cmd.Owner, Type: cmd.Type,
		TTL: cmd.TTL, Value: cmd.Value,
	}
	return q.join(c, now), nil
}

// held returns the exclusive claim of an owner, if the caller may do a to it. A token other than 0 must be the claim's.
// Claims of sessions are left out: they have another OwnerKey. A claim that the caller may not see counts as another
// owner's, so that nobody can guess which owner holds the resource.
func (q *Queue) held(a action, owner string, token uint64) (*member, error) {
	h := q.find(q.Holder)
	switch {
	case token > q.Version:
		return nil, q.ahead(token)
	case q.Free():
		return nil, ErrNotFound
	}
	if h == nil || h.Owner != owner || h.Session != "" {
		return nil, q.collision()
	}
	switch err := q.permit(a, h); {
	case errors.Is(err, ErrNotFound):
		return nil, q.collision()
	case token != 0 && h.Token != token:
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	}
	return h, nil
}

// ahead returns the error for a version that the resource has never had. The version is in Queues.Ahead only if the
// caller may hold all resources: such a caller could block everybody in any case.
func (q *Queue) ahead(known uint64) error {
	if qs := q.set; qs.caller.NeedAll(access.Hold, "") == nil {
		qs.ahead = append(qs.ahead, known)
	}
	return &AheadError{Resource: q.Resource, Known: known, Version: q.Version}
}

func (q *Queue) collision() error {
	return &CollisionError{Holder: q.ExclusiveHolder()}
}

// Release ends an owner's exclusive hold on a resource (Release of Cloud Foundry's Locket).
type Release struct {
	Resource, Owner string
	// Token, unless it is 0, names the grant to release.
	Token uint64
}

// Targets implements Command.
func (cmd Release) Targets() []Target { return []Target{{Resource: cmd.Resource, Whole: true}} }

func (cmd Release) apply(qs *Queues) (*member, error) {
	q, now := qs.targets[0], qs.Now
	h, err := q.held(toEnd, cmd.Owner, cmd.Token)
	if err != nil {
		return nil, err
	}
	q.finish(h, Released, "", now)
	return h, nil
}

// Renew gives an active claim a new TTL, which begins now. A claim of a session has no TTL: the error is
// ErrSessionClaim.
type Renew struct {
	ID  string
	TTL time.Duration
}

// Targets implements Command.
func (cmd Renew) Targets() []Target { return []Target{{ID: cmd.ID, Whole: true}} }

func (cmd Renew) apply(qs *Queues) (*member, error) {
	q, now := qs.targets[0], qs.Now
	m, err := q.permitted(toRenew, cmd.ID)
	if err != nil {
		return nil, err
	}
	if m.Status != Active {
		q.keepWaiting(m, now)
		return nil, &TransitionError{From: m.Status}
	}
	if m.Session != "" {
		return nil, ErrSessionClaim
	}
	renewed := q.change(m, now)
	renewed.TTL = cmd.TTL
	renewed.Deadline = now.Lease.Add(cmd.TTL)
	return m, nil
}

// Activate asks whether a claim is active. It grants nothing. It renews an active claim if a TTL is given (refresh in
// the claim client library), and extends the wait of a claim with a WaitTTL.
type Activate struct {
	ID string
	// TTL is nil to keep the deadline.
	TTL *time.Duration
	// Session restricts the command: see permittedIn.
	Session string
}

// Targets implements Command.
func (cmd Activate) Targets() []Target { return []Target{{ID: cmd.ID, Whole: true}} }

func (cmd Activate) apply(qs *Queues) (*member, error) {
	q, now := qs.targets[0], qs.Now
	m, err := q.permittedIn(cmd.Session, toSee, cmd.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case m.Status == Waiting:
		q.keepWaiting(m, now)
		return nil, ErrContention
	case m.Status != Active:
		return nil, &TransitionError{From: m.Status, To: Active}
	case cmd.TTL != nil:
		return Renew{ID: cmd.ID, TTL: *cmd.TTL}.apply(qs)
	}
	return m, nil
}

// SetStatus moves a claim to a final status that the client chose. Setting the current status again is not an error.
type SetStatus struct {
	ID string
	// Status is Released, Aborted, Withdrawn or Revoked.
	Status Status
	Reason string
}

// Targets implements Command.
func (cmd SetStatus) Targets() []Target { return []Target{{ID: cmd.ID, Whole: true}} }

func (cmd SetStatus) apply(qs *Queues) (*member, error) {
	q, now := qs.targets[0], qs.Now
	m, err := q.permitted(toEnd, cmd.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case m.Status == cmd.Status && m.Status.Final():
		return m, nil
	case !m.Status.mayEnd(cmd.Status):
		return nil, &TransitionError{From: m.Status, To: cmd.Status}
	}
	q.finish(m, cmd.Status, cmd.Reason, now)
	return m, nil
}

// End ends a claim in the way that its status allows: an active claim is released, a
// waiting one withdrawn. Ending a final claim changes nothing and is not an error.
type End struct {
	ID     string
	Reason string
	// Brief is set if the answer may have a Brief claim: see Claim.Brief.
	Brief bool
	// Session restricts the command: see permittedIn.
	Session string
}

// Targets implements Command.
func (cmd End) Targets() []Target { return []Target{{ID: cmd.ID, Whole: !cmd.Brief}} }

func (cmd End) apply(qs *Queues) (*member, error) {
	q, now := qs.targets[0], qs.Now
	m, err := q.permittedIn(cmd.Session, toEnd, cmd.ID)
	if err != nil {
		return nil, err
	}
	switch m.Status {
	case Active:
		q.finish(m, Released, cmd.Reason, now)
	case Waiting:
		q.finish(m, Withdrawn, cmd.Reason, now)
	}
	return m, nil
}

// IfVersion carries out a command about one claim if the claim still has a version, so has not changed since the caller
// read it. Otherwise it returns a VersionError, and nothing changes.
type IfVersion struct {
	ID      string
	Version uint64
	Then    Command
}

// Targets implements Command.
func (cmd IfVersion) Targets() []Target { return cmd.Then.Targets() }

func (cmd IfVersion) apply(qs *Queues) (*member, error) {
	q := qs.targets[0]
	m, err := q.permitted(toSee, cmd.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case cmd.Version > q.Version:
		return nil, q.ahead(cmd.Version)
	case cmd.Version != m.Version:
		return nil, &VersionError{Version: m.Version}
	}
	return cmd.Then.apply(qs)
}

// KeepWaiting extends the wait of claims that somebody has asked about: each is aborted one WaitTTL from now. It skips
// claims that do not wait or have no WaitTTL. It returns no claim.
type KeepWaiting struct {
	IDs []string
}

// Targets implements Command.
func (cmd KeepWaiting) Targets() []Target { return targetsOf(cmd.IDs) }

//nolint:unparam // it is about many claims
func (cmd KeepWaiting) apply(qs *Queues) (*member, error) {
	qs.each(cmd.IDs, func(q *Queue, m *member) {
		if m.Status == Waiting && m.Deadline != 0 {
			q.change(m, qs.Now).Deadline = qs.Now.Lease.Add(m.WaitTTL)
		}
	})
	return nil, nil
}

// Expire ends the holders of Resources whose leases have run out, and abandoned Waiters. The sweeper sends it. It
// returns no claim.
type Expire struct {
	Resources []string
	// Waiters are ids of claims.
	Waiters []string
}

// Targets implements Command.
func (cmd Expire) Targets() []Target {
	targets := targetsOf(cmd.Waiters)
	for _, resource := range cmd.Resources {
		targets = append(targets, Target{Resource: resource})
	}
	return targets
}

//nolint:unparam // the sweep is about resources, not about one claim
func (cmd Expire) apply(qs *Queues) (*member, error) {
	for _, q := range qs.targets {
		q.expire(qs.Now)
	}
	qs.each(cmd.Waiters, func(q *Queue, m *member) {
		q.keepUnasked(m, qs.Now)
		if m.Abandoned(qs.Now) {
			q.abandon(m, qs.Now)
		}
	})
	return nil, nil
}

// ofMany reports whether a command is about many independent targets. It skips targets that do not exist or could not
// be loaded.
func ofMany(cmd Command) bool {
	switch cmd.(type) {
	case Expire, KeepWaiting:
		return true
	default:
		return false
	}
}

func targetsOf(ids []string) []Target {
	targets := make([]Target, len(ids))
	for i, id := range ids {
		targets[i].ID = id
	}
	return targets
}

// each calls do for each known claim.
func (qs *Queues) each(ids []string, do func(*Queue, *member)) {
	for _, id := range ids {
		if q := qs.byID[id]; q != nil {
			do(q, q.find(id))
		}
	}
}

// Request is a command of a caller.
type Request struct {
	// Caller sends it. Its identity is recorded in the claims that it makes and ends.
	Caller  access.Caller
	Command Command
}

// Answer is the result of a request.
type Answer struct {
	// Claim is the claim that the command is about, as the command left it; nil if there is none, or with an Err.
	Claim *Claim
	// Position is Claim's place in the queue, if it waits: 1 for the next. It is 0 if the transaction has not read
	// enough to know it.
	Position int
	// Err is why the request was refused, or ErrUnfinished.
	Err error
}

// Answer carries a request out.
func (qs *Queues) Answer(r Request) (a Answer) {
	if a.Claim, a.Err = qs.DoFor(r.Caller, r.Command); a.Claim == nil || a.Claim.Status != Waiting {
		return a
	}
	if q := qs.byID[a.Claim.ID]; q.isLast(a.Claim.ID) {
		a.Position = q.Waiting
	}
	return a
}

// DoFor is Do for a caller.
func (qs *Queues) DoFor(caller access.Caller, cmd Command) (*Claim, error) {
	qs.caller = caller
	defer func() { qs.caller = access.Caller{} }()
	return qs.Do(cmd)
}
