package dbtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var sessionDueCases = []Case{
	{Name: "DueSessions", Run: dueSessions},
	{Name: "SessionsKeepTimeRunning", Run: sessionsKeepTimeRunning},
	{Name: "SilentServer", Run: silentServer},
	{Name: "AbandonedSession", Run: abandonedSession},
}

func dueSessionsAre(t testing.TB, s db.Store, limit int, want ...string) {
	t.Helper()
	got := overdue(t, s, db.DueQuery{Sessions: limit}).Sessions
	equal(t, "due sessions", fmt.Sprintf("%q", got), fmt.Sprintf("%q", want))
}

func dueSessions(t testing.TB, e Engine) {
	must(t, e.Store.Register(t.Context(), "s1"))
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		Do(t, e.Store, attach(id, "s1"))
	}
	Do(t, e.Store, bound("held by b", "r", "b"))
	dueSessionsAre(t, e.Store, 10)
	left := map[string]time.Duration{"c": 0, "b": 20 * time.Millisecond, "d": time.Hour}
	for _, id := range []string{"c", "b", "d"} {
		Do(t, e.Store, claim.Detach{ID: id, Server: "s1", Left: left[id]})
	}
	beats(t, e.Store, session(t, e.Store, "b").Deadline.Add(db.TimelineSkew))
	dueSessionsAre(t, e.Store, 10, "c", "b")
	dueSessionsAre(t, e.Store, 1, "c")
	for _, id := range []string{"a", "b", "c", "d"} {
		end := ending(id)
		end.OnlyDue = true
		Do(t, e.Store, end)
	}
	dueSessionsAre(t, e.Store, 10)
	noSession(t, e.Store, "b")
	noSession(t, e.Store, "c")
	status(t, e.Store, "held by b", claim.Expired)
	equal(t, "sessions that are left", session(t, e.Store, "a").Server, "s1")
	if next, due := nextLook(t, e.Store), session(t, e.Store, "d").Deadline; next < due || next > due.Add(db.TimelineSkew) {
		t.Errorf("next due is %d, the deadline is %d", next, due)
	}
}

func nextLook(t testing.TB, s db.Store) claim.Time {
	t.Helper()
	return overdue(t, s, db.DueQuery{Idle: time.Minute}).Next
}

func sessionsKeepTimeRunning(t testing.TB, e Engine) {
	must(t, e.Store.Register(t.Context(), "s1"))
	equal(t, "next due without sessions", nextLook(t, e.Store), 0)
	Do(t, e.Store, attach("a", "s1"))
	equal(t, "next due of an attached session", nextLook(t, e.Store), claim.Forever)
	Do(t, e.Store, bound("c", "r", "a"))
	equal(t, "next due of its claim", nextLook(t, e.Store), claim.Forever)
	Do(t, e.Store, claim.Detach{ID: "a", Server: "s1", Left: time.Minute})
	if next, due := nextLook(t, e.Store), session(t, e.Store, "a").Deadline; next < due || next > due.Add(db.TimelineSkew) {
		t.Errorf("next due of a detached session: %d, its deadline is %d", next, due)
	}
	Do(t, e.Store, ending("a"))
	equal(t, "next due in the end", nextLook(t, e.Store), 0)
}

// silentServer has a dead server, which restarts under another name.
func silentServer(t testing.TB, e Engine) {
	begin := now(t, e.Store).Lease
	must(t, e.Store.Register(t.Context(), "s1"))
	Do(t, e.Store, attach("a", "s1"), attach("b", "s1"), attach("c", "elsewhere"), bound("held", "r", "a"))
	from := now(t, e.Store).Lease
	must(t, e.Store.Beat(t.Context(), false))
	beaten := now(t, e.Store).Lease
	attached := session(t, e.Store, "a")
	Do(t, e.Store, attach("late", "s1"), attach("busy", "s1"))
	late := session(t, e.Store, "late")
	made := now(t, e.Store).Lease.Add(time.Second)
	must(t, try(t, e.Store, time.Second, bound("its", "r", "busy"))[0].err)
	busy := session(t, e.Store, "busy")
	if busy.Attached < made {
		t.Errorf("the session has got a claim at %d, and says that its server was there at %d", made, busy.Attached)
	}
	var many []claim.Command // more than one step
	for i := range 600 {
		many = append(many, attach(fmt.Sprint("many", i), "s1"))
	}
	Do(t, e.Store, many...)

	s := e.Reopen(t)
	must(t, s.Register(t.Context(), "s2"))
	Do(t, s, attach("c", "s2"))
	next := nextLook(t, s)
	early, err := s.DetachSilent(t.Context(), db.ServerTimeout)
	must(t, err)
	if now(t, s).Lease < from.Add(db.ServerTimeout) { // else this machine was too slow
		equal(t, "sessions of a server that is not silent yet", early, 0)
		if next < begin.Add(db.ServerTimeout) || next > beaten.Add(db.ServerTimeout+db.TimelineSkew) {
			t.Errorf("next due is %s after the last beat", next.Sub(beaten))
		}
	}
	beats(t, s, beaten.Add(db.ServerTimeout+db.TimelineSkew))
	detachSilent(t, s, 604-early)
	detachSilent(t, s, 0)
	got := session(t, s, "a")
	if got.Server != "" || got.Attached != 0 || got.Version <= attached.Version {
		t.Errorf("the session of a silent server: %+v", got)
	}
	// A new decider of a cluster allows for beats that the one before has answered without a beat of its own.
	if d := got.Deadline.Sub(attached.Attached.Add(attached.TTL)); d < 0 || d > beaten.Sub(attached.Attached)+db.BeatInterval/2 {
		t.Errorf("the deadline is %s later than for a session attached to it", d)
	}
	if got.Deadline < from.Add(attached.TTL) {
		t.Errorf("the deadline is %s too early, counted from the last beat", from.Add(attached.TTL).Sub(got.Deadline))
	}
	if got := session(t, s, "late"); got.Deadline < late.Attached.Add(late.TTL) {
		t.Errorf("a session attached after the last beat: %+v", got)
	}
	if got := session(t, s, "busy"); got.Deadline < busy.Attached.Add(busy.TTL) {
		t.Errorf("a session that got a claim after the last beat: %+v", got)
	}
	attachedTo(t, s, "s1")
	for i := range many {
		if got := session(t, s, fmt.Sprint("many", i)); got.Server != "" || got.Deadline < late.Attached.Add(late.TTL) {
			t.Errorf("one of many sessions: %+v", got)
		}
	}
	equal(t, "the session that was moved", session(t, s, "c").Server, "s2")
	status(t, s, "held", claim.Active)
	if next := nextLook(t, s); next < got.Deadline {
		t.Errorf("a server that is gone is looked for again: %d", next)
	}
}

func detachSilent(t testing.TB, s db.Store, want int) {
	t.Helper()
	n, err := s.DetachSilent(t.Context(), db.ServerTimeout)
	must(t, err)
	equal(t, "sessions of silent servers", n, want)
}

// abandonedSession is attached to a server that nobody knows: it was declared gone before.
func abandonedSession(t testing.TB, e Engine) {
	must(t, e.Store.Register(t.Context(), "s1"))
	Do(t, e.Store, attach("mine", "s1"), attach("a", "gone"))
	attached := session(t, e.Store, "a")
	equal(t, "attached", attached.Attached > 0, true)
	if next := nextLook(t, e.Store); next == 0 || next > now(t, e.Store).Lease {
		t.Errorf("nobody will look at it: next due is %d", next)
	}
	detachSilent(t, e.Store, 1)
	got := session(t, e.Store, "a")
	equal(t, "deadline", got.Deadline, attached.Attached.Add(attached.TTL))
	equal(t, "server", got.Server, "")
	equal(t, "a session of this server", session(t, e.Store, "mine").Server, "s1")
}
