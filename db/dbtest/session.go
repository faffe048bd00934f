package dbtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var sessionCases = []Case{
	{Name: "SessionIsStored", Run: sessionIsStored},
	{Name: "SessionIdentity", Run: sessionIdentity},
	{Name: "SessionMoves", Run: sessionMoves, Clock: true},
	{Name: "SessionNamesAreBytes", Run: sessionNamesAreBytes},
	{Name: "SessionClaims", Run: sessionClaims},
	{Name: "SessionRefusals", Run: sessionRefusals},
	{Name: "SessionsPages", Run: sessionsPages},
}

// attach attaches a session to a server.
func attach(id, server string) claim.Attach {
	secret := sha256.Sum256([]byte("secret of " + id))
	return claim.Attach{Session: claim.Session{ID: id, Owner: "owner of " + id, Secret: secret[:], TTL: time.Hour}, Server: server}
}

// bound is a claim of a session that is attached to the server "s1".
func bound(id, resource, session string) claim.Create {
	return claim.Create{ID: id, Resource: resource, Owner: "owner of " + session, Session: session, Server: "s1"}
}

// ending ends sessions as the sweep does.
func ending(id string) claim.EndSession {
	return claim.EndSession{ID: id, Active: claim.Expired, Waiting: claim.Aborted, Reason: "over"}
}

func session(t testing.TB, s db.Store, id string) claim.Session {
	t.Helper()
	found, _, err := s.Session(t.Context(), id)
	if err != nil {
		t.Fatalf("session %.40q: %v", id, err)
	}
	return found
}

func noSession(t testing.TB, s db.Store, id string) {
	t.Helper()
	if found, _, err := s.Session(t.Context(), id); !errors.Is(err, claim.ErrSessionEnded) {
		t.Errorf("session %.40q: %+v, %v", id, found, err)
	}
}

// sessionClaimsAre checks the live claims of a session.
func sessionClaimsAre(t testing.TB, s db.Store, session string, want ...string) {
	t.Helper()
	claims, err := s.Live(t.Context(), db.LiveOf{Session: session}, db.Page{})
	must(t, err)
	equal(t, "claims of "+session, fmt.Sprint(ids(claims)), fmt.Sprint(want))
	for _, c := range claims {
		same(t, "claim of "+session, c, get(t, s, c.ID))
	}
}

func sessionIsStored(t testing.TB, e Engine) {
	for _, cmd := range []claim.Attach{
		attach("a", "s1"),
		{Session: claim.Session{ID: strings.Repeat("~", 128), Owner: strings.Repeat("–", 300), Secret: make([]byte, 32), TTL: time.Microsecond}, Server: strings.Repeat("s", 40)},
	} {
		before := now(t, e.Store)
		Do(t, e.Store, cmd)
		got, at, err := e.Store.Session(t.Context(), cmd.Session.ID)
		must(t, err)
		want := cmd.Session
		want.Server, want.Attached, want.Created, want.Version = cmd.Server, got.Attached, got.Created, got.Version
		equal(t, "session", got, want)
		if got.Created < before.Wall || got.Created > at.Wall || got.Attached < before.Lease || got.Attached > at.Lease || got.Version == 0 {
			t.Errorf("made between %+v and %+v: %+v", before, at, got)
		}
		e.Store = e.Reopen(t)
		equal(t, "session after a restart", session(t, e.Store, cmd.Session.ID), got)
	}
	noSession(t, e.Store, "b")
}

// sessionIdentity: another identity does not get a session even if it knows the secret. A session from before
// authentication is open to everybody that knows the secret.
func sessionIdentity(t testing.TB, e Engine) {
	as := func(identity string, cmd claim.Command) error {
		outcome, err := db.Transact(t.Context(), e.Store, db.Batch{Requests: requests(identity, cmd)})
		must(t, err)
		return outcome.Answers[0].Err
	}
	must(t, as("cert:a", attach("a", "s1")))
	equal(t, "identity", session(t, e.Store, "a").Identity, "cert:a")
	for _, identity := range []string{"cert:b", ""} {
		if err := as(identity, attach("a", "s2")); !errors.Is(err, claim.ErrSessionSecret) {
			t.Errorf("%q attaches it: %v", identity, err)
		}
	}
	must(t, as("cert:a", attach("a", "s2")))
	moved := session(t, e.Store, "a")
	equal(t, "identity", moved.Identity, "cert:a")
	equal(t, "server", moved.Server, "s2")
	must(t, as("", attach("b", "s1")))
	must(t, as("cert:b", attach("b", "s2")))
	page, _, err := e.Store.Sessions(t.Context(), "", 10)
	must(t, err)
	equal(t, "identity in a list", page[0].Identity, "cert:a")
}

// attachedTo checks which sessions are attached to a server.
func attachedTo(t testing.TB, s db.Store, server string, want ...string) {
	t.Helper()
	ids, err := s.AttachedTo(t.Context(), server)
	must(t, err)
	slices.Sort(ids)
	equal(t, "attached to "+server, fmt.Sprint(ids), fmt.Sprint(want))
}

func sessionMoves(t testing.TB, e Engine) {
	Do(t, e.Store, attach("a", "s1"), attach("b", "s1"))
	attachedTo(t, e.Store, "s1", "a", "b")
	first := session(t, e.Store, "a")
	Do(t, e.Store, attach("a", "s2"))
	attachedTo(t, e.Store, "s1", "b")
	attachedTo(t, e.Store, "s2", "a")
	second := session(t, e.Store, "a")
	if second.Server != "s2" || second.Version <= first.Version || second.Attached < first.Attached {
		t.Errorf("moved from %+v to %+v", first, second)
	}
	Do(t, e.Store, claim.Detach{ID: "a", Server: "s1", Left: time.Minute})
	equal(t, "session that another server detaches", session(t, e.Store, "a"), second)
	before := now(t, e.Store)
	Do(t, e.Store, claim.Detach{ID: "a", Server: "s2", Left: time.Minute})
	after := now(t, e.Store)
	detached := session(t, e.Store, "a")
	attachedTo(t, e.Store, "s2")
	if d := detached.Deadline; d < before.Lease.Add(time.Minute) || d > after.Lease.Add(time.Minute) {
		t.Errorf("detached between %+v and %+v: %+v", before, after, detached)
	}
	detached.Deadline, detached.Version = 0, 0
	want := first
	want.Server, want.Attached, want.Version = "", 0, 0
	equal(t, "detached session", detached, want)
	Do(t, e.Store, attach("a", "s1"))
	if again := session(t, e.Store, "a"); again.Server != "s1" || again.Deadline != 0 || again.Created != first.Created {
		t.Errorf("attached again: %+v", again)
	}
}

func sessionNamesAreBytes(t testing.TB, e Engine) {
	for _, id := range []string{"a", "A", "a "} {
		Do(t, e.Store, attach(id, "s1"))
	}
	Do(t, e.Store, bound("c1", "r1", "a"), bound("c2", "r2", "A"), bound("c3", "r3", "a "))
	Do(t, e.Store, ending("A"))
	noSession(t, e.Store, "A")
	sessionClaimsAre(t, e.Store, "a", "c1")
	sessionClaimsAre(t, e.Store, "A")
	sessionClaimsAre(t, e.Store, "a ", "c3")
	equal(t, "owner", session(t, e.Store, "a ").Owner, "owner of a ")
	noSession(t, e.Store, "a  ")
}

// sessionClaims makes claims of a session and ends them in all ways.
func sessionClaims(t testing.TB, e Engine) {
	Do(t, e.Store, attach("s", "s1"), attach("other", "s1"), exclusive("first", "busy"))
	made := session(t, e.Store, "s").Version
	waiting := bound("w", "busy", "s")
	held := Do(t, e.Store, bound("a", "r", "s"), bound("b", "q", "s"), waiting, bound("o", "p", "other"), exclusive("free", "f"))[0]
	if held.Session != "s" || held.Deadline != claim.Forever || held.Status != claim.Active {
		t.Errorf("the claim of a session: %+v", held)
	}
	stored(t, e.Store, "the claim of a session", held)
	if now := session(t, e.Store, "s").Version; now <= made {
		t.Errorf("the session is at %d, and was before", now)
	}
	sessionClaimsAre(t, e.Store, "s", "a", "b", "w")
	sessionClaimsAre(t, e.Store, "other", "o")
	sessionClaimsAre(t, e.Store, "none")
	Do(t, e.Store, released("a"), released("first"))
	sessionClaimsAre(t, e.Store, "s", "b", "w")
	equal(t, "deadline of a claim that was granted later", get(t, e.Store, "w").Deadline, claim.Forever)
	Do(t, e.Store, bound("gone", "r", "s"), claim.End{ID: "gone"}, withdrawn("w"))
	sessionClaimsAre(t, e.Store, "s", "b")
	sessionClaimsAre(t, e.Reopen(t), "s", "b")
}

func sessionRefusals(t testing.TB, e Engine) {
	Do(t, e.Store, attach("s", "s1"), attach("d", "s1"), claim.Detach{ID: "d", Server: "s1"})
	Do(t, e.Store, bound("a", "r", "s"))
	before := []claim.Session{session(t, e.Store, "s"), session(t, e.Store, "d")}
	elsewhere, detached, another := bound("x", "x", "s"), bound("x", "x", "d"), attach("s", "s2")
	elsewhere.Server, another.Session.Secret = "s2", []byte("guess")
	detached.Server = ""
	resume := attach("none", "s1")
	resume.Resume = true
	for _, c := range []struct {
		cmd  claim.Command
		want error
	}{
		{bound("x", "x", "none"), claim.ErrSessionEnded},
		{elsewhere, claim.ErrNotAttached},
		{detached, claim.ErrNotAttached},
		{another, claim.ErrSessionSecret},
		{resume, claim.ErrSessionEnded},
		{claim.EndSession{ID: "s", Server: "s2", Active: claim.Released, Waiting: claim.Withdrawn}, claim.ErrNotAttached},
		{claim.Renew{ID: "a", TTL: time.Hour}, claim.ErrSessionClaim},
	} {
		if err := refuse(t, e.Store, c.cmd); !errors.Is(err, c.want) {
			t.Errorf("%T: got %v, want %v", c.cmd, err, c.want)
		}
	}
	// A server of a cluster lets a session that is due live for as long as clocks may differ.
	if err := try(t, e.Store, time.Minute, attach("d", "s1"))[0].err; !errors.Is(err, claim.ErrSessionEnded) {
		t.Errorf("attach a session that is due: got %v, want %v", err, claim.ErrSessionEnded)
	}
	Do(t, e.Store, claim.Detach{ID: "none", Server: "s1"}, ending("none"), claim.EndSession{ID: "s", OnlyDue: true})
	equal(t, "sessions", []claim.Session{session(t, e.Store, "s"), session(t, e.Store, "d")}, before)
	sessionClaimsAre(t, e.Store, "s", "a")
	noSession(t, e.Store, "none")
	equal(t, "row of a refused claim's resource", row(t, e.Store, "x").Version, 0)
}

func sessionsPages(t testing.TB, e Engine) {
	var want []string
	for i := range 25 {
		id := fmt.Sprintf("s%02d", i)
		want = append(want, id)
		Do(t, e.Store, attach(id, "s1"))
		for n := range i % 4 {
			Do(t, e.Store, bound(fmt.Sprint(id, "-", n), fmt.Sprint("of ", n), id))
		}
	}
	for _, limit := range []int{1, 10, 25, 1000} {
		var got []string
		for after := ""; ; {
			page, at, err := e.Store.Sessions(t.Context(), after, limit)
			must(t, err)
			if len(page) > limit || at.Wall == 0 {
				t.Fatalf("%d of %d sessions at %+v", len(page), limit, at)
			}
			for _, s := range page {
				got = append(got, s.ID)
				equal(t, "session in a page", s.Session, session(t, e.Store, s.ID))
				claims, err := e.Store.Live(t.Context(), db.LiveOf{Session: s.ID}, db.Page{})
				must(t, err)
				active := len(slices.DeleteFunc(claims, func(c claim.Claim) bool { return c.Status != claim.Active }))
				equal(t, "claims of "+s.ID, []int{s.Active, s.Waiting}, []int{active, len(claims) - active})
			}
			if len(page) < limit || len(got) > len(want) {
				break
			}
			after = page[len(page)-1].ID
		}
		equal(t, fmt.Sprintf("sessions in pages of %d", limit), got, want)
	}
}
