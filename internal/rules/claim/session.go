package claim

import (
	"crypto/subtle"
	"errors"
	"math"
	"time"
)

// Session is one client's identity, with one TTL for all its claims. It is kept alive by the server
// that it is attached to.
type Session struct {
	// ID names the session, for all time.
	ID string
	// Owner is the owner of the session's claims.
	Owner string
	// Identity is who the caller that made the session was authenticated as, "" if nobody asked.
	Identity string
	// Secret is the SHA-256 of the secret that a client needs to resume the session.
	Secret []byte
	// TTL is how long the session lives when no server keeps it alive.
	TTL time.Duration
	// Server is the server that the session is attached to, "" for none.
	Server string
	// Attached is when a commit last showed, in lease time, that the session is attached to Server: the commit that attached it, or a commit that
	// has made a claim of it since. If Server fails, the session lives for its TTL from then, or from the server's last beat if that was later.
	Attached Time
	// Deadline is when the TTL of a detached session runs out, in lease time. It is 0 while the session is attached.
	Deadline Time
	// Created is by the database's clock.
	Created Time
	// Version rises with every change of the session, and with every claim made for it.
	Version uint64
	// Ending is how the session ends, while it has more claims than one transaction can end; otherwise it is zero. A
	// session that is ending is not attached, gets no more claims, and cannot be resumed.
	Ending Ending
}

// Ending is how a session and its claims end.
type Ending struct {
	// Active and Waiting are the final statuses of the active and waiting claims, for Reason.
	Active, Waiting Status
	Reason          string
	// By is the identity that ends them, "" if it is not known.
	By string
}

// Ends reports whether the session has started to end.
func (s *Session) Ends() bool { return s.Ending != Ending{} }

// Forever is the deadline of an active claim with a session.
const Forever = Time(math.MaxInt64)

// MaxSessionClaims is how many live claims a session may have. The server that it is attached to counts them, because
// only that server makes them.
const MaxSessionClaims = 10_000

// MaxEnds is how many claims of sessions one transaction ends. A session with more of them ends in
// several transactions.
const MaxEnds = 256

// endingTime is the lease time until a session that is ending is due again. By then the server that was ending it has
// failed.
const endingTime = 2 * time.Second

var (
	// ErrUnfinished is returned when one transaction has executed a part of a command. The Rest is for the next
	// transaction.
	ErrUnfinished = errors.New("the command goes on in the next transaction")
	// ErrSessionEnded is returned when there is no such session, or no longer.
	ErrSessionEnded = errors.New("the session has ended")
	// ErrSessionSecret is returned by Attach when the secret is wrong, or when another identity made the session.
	ErrSessionSecret = errors.New("the secret is wrong, or the session is another identity's")
	// ErrNotAttached is returned when the session is not attached to the server that sends the command.
	ErrNotAttached = errors.New("the session is not attached to this server")
	// ErrSessionFull is returned for a session that has MaxSessionClaims.
	ErrSessionFull = errors.New("the session has too many claims")
	// ErrSessionClaim is returned by Renew for a claim that is bound to a session.
	ErrSessionClaim = errors.New("the claim is bound to a session, and has no TTL of its own")
)

// Due reports whether the session is detached and its time has passed.
func (s *Session) Due(now Instant) bool {
	return s.Deadline != 0 && s.Deadline <= now.DueBefore()
}

// SessionChange is the change of one session by a transaction.
type SessionChange struct {
	// Before is nil if the transaction made the session, After if it ended it.
	Before, After *Session
}

// ID returns the session's id.
func (c SessionChange) ID() string {
	if c.Before != nil {
		return c.Before.ID
	}
	return c.After.ID
}

// session is a session that a transaction knows.
type session struct {
	stored *Session // nil if there was none
	now    *Session // nil if there is none
	claims []string // the ids of its live claims, as far as they were read, and of those made since
	more   bool     // it has claims that were not read
}

// PutSession adds a session that was read. claims are the ids of its live claims, needed by EndSession only. The caller
// then calls Add or Refuse for each of them.
func (qs *Queues) PutSession(s Session, claims ...string) {
	qs.makeSession(s.ID, &session{stored: &s, now: &s, claims: claims})
}

// PutPart is PutSession for a session with more claims than were read. claims has waiting claims first; if it has an
// active claim, it has all that wait.
func (qs *Queues) PutPart(s Session, claims ...string) {
	qs.makeSession(s.ID, &session{stored: &s, now: &s, claims: claims, more: true})
}

// RenewSession gives a detached session its full TTL again if its row was locked, so that nobody could resume it. It
// reports whether the session exists and is not about to end. It is called before the first command.
func (qs *Queues) RenewSession(id string) bool {
	s := qs.sessions[id]
	if s == nil || s.now == nil || s.now.Deadline == 0 || s.now.Ends() {
		return false
	}
	if due := qs.Now.Lease.Add(s.now.TTL); s.now.Deadline < due {
		s.change(qs.Now).Deadline = due
	}
	return true
}

func (qs *Queues) makeSession(id string, s *session) *session {
	put(&qs.sessions, id, s)
	return s
}

// Session returns the current state of a session, nil if there is none.
func (qs *Queues) Session(id string) *Session {
	if s := qs.sessions[id]; s != nil {
		return s.now
	}
	return nil
}

// ChangedSessions returns the changes of sessions, in no order.
func (qs *Queues) ChangedSessions() []SessionChange {
	var changes []SessionChange
	for _, s := range qs.sessions {
		if s.stored != s.now { // a session that was made and ended is nil in both
			changes = append(changes, SessionChange{Before: s.stored, After: s.now})
		}
	}
	return changes
}

// attached returns the session if it is attached to a server.
func (qs *Queues) attached(id, server string) (*session, error) {
	s := qs.sessions[id]
	switch {
	case s == nil || s.now == nil:
		return nil, ErrSessionEnded
	case server == "" || s.now.Server != server:
		return nil, ErrNotAttached
	}
	return s, nil
}

// renew notes that the session is attached to its server at present, so that its TTL runs from now if the server fails.
func (s *session) renew(now Instant) {
	after := s.change(now)
	after.Attached = max(after.Attached, now.Lease)
}

// change replaces the session by a copy with the next version. The caller sets the other fields of the copy.
func (s *session) change(now Instant) *Session {
	after := *s.now
	after.Version = max(after.Version+1, uint64(max(0, now.Wall)))
	s.now = &after
	return &after
}

// Attach makes a session, or attaches a known one to a server; the last Attach counts. It is refused with
// ErrSessionSecret, and with ErrSessionEnded for a session whose TTL has run out: its id is not used again. It returns
// no claim.
type Attach struct {
	// Session has the ID, the Owner, the Secret and the TTL. An existing session keeps its other fields.
	Session Session
	// Server keeps the session alive from now on (see db.Pulse).
	Server string
	// Resume attaches a known session only; it is ErrSessionEnded otherwise.
	Resume bool
}

// Targets implements Command.
func (cmd Attach) Targets() []Target { return []Target{{Session: cmd.Session.ID}} }

//nolint:unparam // it is about a session, not about a claim
func (cmd Attach) apply(qs *Queues) (*member, error) {
	s := qs.sessions[cmd.Session.ID]
	switch {
	case s != nil && s.now != nil:
		foreign := s.now.Identity != "" && s.now.Identity != qs.caller.Name
		if foreign || subtle.ConstantTimeCompare(s.now.Secret, cmd.Session.Secret) != 1 {
			return nil, ErrSessionSecret
		}
		if s.now.Due(qs.Now) || s.now.Ends() {
			return nil, ErrSessionEnded
		}
	case cmd.Resume, s != nil: // ended by this very transaction
		return nil, ErrSessionEnded
	default:
		s = qs.makeSession(cmd.Session.ID, &session{now: &Session{
			ID: cmd.Session.ID, Owner: cmd.Session.Owner, Identity: qs.caller.Name, Secret: cmd.Session.Secret, TTL: cmd.Session.TTL, Created: qs.Now.Wall,
		}})
	}
	after := s.change(qs.Now)
	after.Server, after.Attached, after.Deadline = cmd.Server, qs.Now.Lease, 0
	return nil, nil
}

// Detach says that a server no longer keeps a session alive: the session is due when Left has passed. If the session is
// not attached to the server, or does not exist, nothing changes and that is not an error.
type Detach struct {
	ID, Server string
	// Left is the TTL less the time since the server last heard from the session's client.
	Left time.Duration
}

// Targets implements Command.
func (cmd Detach) Targets() []Target { return []Target{{Session: cmd.ID}} }

//nolint:unparam // it is about a session, not about a claim
func (cmd Detach) apply(qs *Queues) (*member, error) {
	s, err := qs.attached(cmd.ID, cmd.Server)
	if err != nil {
		return nil, nil //nolint:nilerr // the answer to a repeated command
	}
	after := s.change(qs.Now)
	after.Server, after.Attached = "", 0
	after.Deadline = qs.Now.Lease.Add(min(max(cmd.Left, 0), after.TTL))
	return nil, nil
}

// EndSession ends a session and all its claims, or with Keep its claims only. A missing session is not an error.
// It returns no claim.
//
// A session with more claims than one transaction ends takes several transactions; the error of all but the last is
// ErrUnfinished. The first one marks the session as ending. Waiting claims end before active ones, so that the session
// is not granted what it releases. If the server fails meanwhile, the session is due after endingTime, and the next
// EndSession continues with the Ending of the first.
type EndSession struct {
	ID string
	// Server, unless it is "", is the server that the session must be attached to; it is ErrNotAttached otherwise.
	Server string
	// OnlyDue ends the session only if it is due; otherwise EndSession does nothing.
	OnlyDue bool
	// Keep ends the claims and not the session.
	Keep bool
	// Active and Waiting are the final statuses of the active and waiting claims, for Reason. With Keep, 0 leaves those
	// claims alone.
	Active, Waiting Status
	Reason          string
}

// Targets implements Command.
func (cmd EndSession) Targets() []Target {
	return []Target{{Session: cmd.ID, Claims: true, Waiting: cmd.Active == 0}}
}

// Rest returns the rest of a command that failed with ErrUnfinished.
func Rest(cmd Command) Command {
	if end, ok := cmd.(EndSession); ok {
		end.OnlyDue = false // it is not due while somebody ends it
		return end
	}
	return cmd
}

func (cmd EndSession) apply(qs *Queues) (*member, error) {
	s := qs.sessions[cmd.ID]
	switch {
	case s == nil || s.now == nil:
		return nil, nil
	case cmd.OnlyDue && !s.now.Due(qs.Now):
		return nil, nil
	case s.now.Ends() && !cmd.Keep:
		return nil, s.endAs(s.now.Ending, qs)
	case cmd.Server != "" && s.now.Server != cmd.Server:
		return nil, ErrNotAttached
	}
	how := Ending{Active: cmd.Active, Waiting: cmd.Waiting, Reason: cmd.Reason, By: qs.caller.Name}
	if cmd.Keep {
		s.change(qs.Now)
		return nil, s.endClaims(how, qs)
	}
	return nil, s.endAs(how, qs)
}

// endAs ends the session, or marks it as ending when claims are left.
func (s *session) endAs(how Ending, qs *Queues) error {
	err := s.endClaims(how, qs)
	if err == nil {
		s.now, s.claims = nil, nil
		return nil
	}
	after := s.change(qs.Now)
	after.Server, after.Attached, after.Ending = "", 0, how
	after.Deadline = qs.Now.Lease.Add(endingTime)
	return err
}

// endClaims ends those claims of the session that were read. It returns ErrUnfinished if there are more. It returns the
// error of a claim that could not be loaded if it ended no other.
func (s *session) endClaims(how Ending, qs *Queues) error {
	ended, refused := 0, error(nil)
	for _, id := range s.claims {
		if err := qs.refused.claims[id]; err != nil {
			refused = err
			continue
		}
		if q := qs.byID[id]; q != nil && q.endAs(q.find(id), how, qs.Now) {
			ended++
		}
	}
	switch {
	case refused != nil && ended == 0:
		return refused
	case refused != nil || s.more:
		return ErrUnfinished
	}
	return nil
}

// endAs ends a claim of a session as how says, and reports whether it did.
func (q *Queue) endAs(m *member, how Ending, now Instant) bool {
	to := how.Active
	if m.Status == Waiting {
		to = how.Waiting
	}
	if to == 0 || m.Status.Final() {
		return false
	}
	q.finish(m, to, how.Reason, now)
	if to != Expired {
		m.EndedBy = how.By
	}
	return true
}
