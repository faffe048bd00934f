package claim_test

import (
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/claim"
)

// sessions is the part of the model that knows sessions. One that has ended stays, with now nil,
// until the transaction has ended.
type sessions map[string]*modelSession

type modelSession struct {
	now    *claim.Session
	claims []string // the ids of claims that were live when the transaction began, or were made since
}

// begin begins another transaction: what has ended is not read any more.
func (m *model) begin() {
	for id, s := range m.sessions {
		if s.now == nil {
			delete(m.sessions, id)
			continue
		}
		s.claims = slices.DeleteFunc(s.claims, func(id string) bool {
			e := m.find(id)
			return e == nil || isFinal(e.Status)
		})
	}
}

// session returns a session that has not ended, or nil.
func (m *model) session(id string) *modelSession {
	if s := m.sessions[id]; s != nil && s.now != nil {
		return s
	}
	return nil
}

// attached returns why no claim is made for a session at a server.
func (m *model) attached(id, server string) error {
	switch s := m.session(id); {
	case s == nil:
		return claim.ErrSessionEnded
	case server == "" || s.now.Server != server:
		return claim.ErrNotAttached
	}
	return nil
}

func (m *model) moveOn(s *modelSession, now claim.Instant) {
	s.now.Version = max(s.now.Version+1, uint64(max(0, now.Wall)))
}

func (m *model) attach(cmd claim.Attach, now claim.Instant) error {
	known := m.sessions[cmd.Session.ID]
	s := m.session(cmd.Session.ID)
	switch {
	case s != nil && string(s.now.Secret) != string(cmd.Session.Secret):
		return claim.ErrSessionSecret
	case s != nil && s.now.Deadline != 0 && s.now.Deadline <= now.Lease:
		return claim.ErrSessionEnded
	case s == nil && (cmd.Resume || known != nil):
		return claim.ErrSessionEnded
	case s == nil:
		made := cmd.Session
		made.Created = now.Wall
		s = &modelSession{now: &made}
		m.sessions[made.ID] = s
	}
	m.moveOn(s, now)
	s.now.Server, s.now.Attached, s.now.Deadline = cmd.Server, now.Lease, 0
	return nil
}

func (m *model) detach(cmd claim.Detach, now claim.Instant) {
	if m.attached(cmd.ID, cmd.Server) != nil {
		return
	}
	s := m.session(cmd.ID)
	m.moveOn(s, now)
	s.now.Server, s.now.Attached = "", 0
	s.now.Deadline = now.Lease.Add(min(max(cmd.Left, 0), s.now.TTL))
}

// endSession ends the session and the claims that the command says, and grants waiting claims.
func (m *model) endSession(cmd claim.EndSession, now claim.Instant) error {
	s := m.session(cmd.ID)
	if s == nil {
		return nil
	}
	if len(s.claims) > 0 {
		m.passOn(now)
		defer m.grant(now)
	}
	switch {
	case cmd.Server != "" && s.now.Server != cmd.Server:
		return claim.ErrNotAttached
	case cmd.OnlyDue && (s.now.Deadline == 0 || s.now.Deadline > now.Lease):
		return nil
	}
	for i := range m.claims {
		e := &m.claims[i]
		to := map[claim.Status]claim.Status{claim.Active: cmd.Active, claim.Waiting: cmd.Waiting}[e.Status]
		if e.Session == cmd.ID && to != 0 {
			e.Status, e.Reason, e.Finished, e.Version = to, cmd.Reason, now.Wall, m.next(now)
		}
	}
	if cmd.Keep {
		m.moveOn(s, now)
		return nil
	}
	s.now, s.claims = nil, nil
	return nil
}

// sessionIDs has the ids of all sessions of a world.
var sessionIDs = []string{"north", "south"}

func (w *world) sessionID() string { return oneOf(w, "session", sessionIDs) }

func (w *world) server() string { return oneOf(w, "server", []string{"one", "two"}) }

// serverOf usually returns the server that a session is attached to.
func (w *world) serverOf(id string) string {
	if s := w.model.session(id); s != nil && w.choose(4, "another server") != 1 {
		return s.now.Server
	}
	return w.server()
}

func (w *world) attach() claim.Command {
	secret := []byte("secret")
	if w.choose(8, "a wrong secret") == 1 {
		secret = []byte("wrong!")
	}
	return claim.Attach{
		Server: w.server(), Resume: w.choose(4, "resume") == 1,
		Session: claim.Session{ID: w.sessionID(), Owner: w.owner(), Secret: secret, TTL: 10 * time.Second},
	}
}

func (w *world) detach() claim.Command {
	id := w.sessionID()
	return claim.Detach{ID: id, Server: w.serverOf(id), Left: oneOf(w, "left", []time.Duration{0, 3 * time.Second, time.Hour, -1})}
}

// ends are those by the client, the sweep, a reset, and UNLOCK_ALL.
var ends = []claim.EndSession{
	{Active: claim.Released, Waiting: claim.Withdrawn},
	{Active: claim.Expired, Waiting: claim.Aborted, OnlyDue: true},
	{Active: claim.Revoked, Waiting: claim.Revoked, Reason: "reset"},
	{Active: claim.Released, Waiting: claim.Withdrawn, Keep: true},
	{Waiting: claim.Withdrawn, Keep: true},
}

func (w *world) endSession() claim.Command {
	cmd := oneOf(w, "end", ends)
	cmd.ID = w.sessionID()
	if !cmd.OnlyDue && w.choose(2, "of a server") == 1 {
		cmd.Server = w.serverOf(cmd.ID)
	}
	return cmd
}

// createFor makes a claim for a session, which usually exists.
func (w *world) createFor() claim.Command {
	cmd := w.createAs(w.newID())
	cmd.Session = w.sessionID()
	cmd.Server = w.serverOf(cmd.Session)
	cmd.NoWait = w.choose(4, "try") == 1
	return cmd
}

// recreateFor repeats a session's command, with its claim's id or another claim's.
func (w *world) recreateFor() claim.Command {
	cmd := w.createAs(w.anyID())
	cmd.Session = w.sessionID()
	if e := w.model.find(cmd.ID); e != nil && w.choose(4, "another") != 1 {
		cmd.Session, cmd.Owner, cmd.Units = e.Session, e.Owner, e.Units
	}
	cmd.Server = w.serverOf(cmd.Session)
	return cmd
}

// checkSession compares a session, nil if there is none, with the model's.
func (m *model) checkSession(t rapid.TB, id string, got *claim.Session) {
	t.Helper()
	var want *claim.Session
	if s := m.session(id); s != nil {
		want = s.now
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("session %q is %+v, that of the model %+v", id, got, want)
	}
}

// checkBound checks the invariants of sessions' claims: the session of a live claim exists, and an active claim has
// no deadline of its own.
func checkBound(t rapid.TB, claims []entry, session func(id string) *claim.Session) {
	t.Helper()
	for _, e := range claims {
		switch {
		case e.Session == "" || isFinal(e.Status):
		case session(e.Session) == nil:
			t.Fatalf("%+v is live, and its session has ended", e)
		case e.Status == claim.Active && e.Deadline != claim.Forever:
			t.Fatalf("%+v has a deadline", e)
		}
	}
}

// checkHeld checks that a session's claim ends only because somebody ended it or its session, never because of the
// time.
func checkHeld(t rapid.TB, was, now entry, cmds []claim.Command) {
	t.Helper()
	if now.Session == "" || isFinal(was.Status) || !isFinal(now.Status) {
		return
	}
	if was.Status != claim.Active && now.Token == 0 && now.Reason == claim.ReasonAbandoned {
		return
	}
	if !slices.ContainsFunc(cmds, mayEndClaim(now)) {
		t.Fatalf("ended by none of %+v: %+v, now %+v", cmds, was, now)
	}
}

// mayEndClaim returns whether a command may end a session's claim.
func mayEndClaim(e entry) func(claim.Command) bool {
	return func(cmd claim.Command) bool {
		switch cmd := cmd.(type) {
		case claim.EndSession:
			return cmd.ID == e.Session
		case claim.SetStatus:
			return cmd.ID == e.ID
		case claim.End:
			return cmd.ID == e.ID
		}
		return false
	}
}
