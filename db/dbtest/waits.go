package dbtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var waitCases = []Case{
	{Name: "WaitTTLIsStored", Run: waitTTLIsStored},
	{Name: "Abandoned", Run: abandoned},
	{Name: "AbandonedLimit", Run: abandonedLimit},
	{Name: "NextDueOfWaits", Run: nextDueOfWaits},
	{Name: "WaitsOf", Run: waitsOf},
	{Name: "WaitsOfLimit", Run: waitsOfLimit},
	{Name: "WaitsOfSessions", Run: waitsOfSessions},
}

// patient is a claim that may wait for some time.
func patient(id, resource string, wait time.Duration) claim.Create {
	c := exclusive(id, resource)
	c.WaitTTL = wait
	return c
}

func waitTTLIsStored(t testing.TB, e Engine) {
	Do(t, e.Store, exclusive("holder", "r"))
	cmd := patient("a", "r", time.Minute)
	cmd.UserData, cmd.Value = []byte(`{"a":1}`), "v"
	first := stored(t, e.Store, "waiting", DoAt(t, e.Store, -time.Second, cmd)[0])
	equal(t, "wait TTL", first.WaitTTL, time.Minute)
	equal(t, "wait TTL of another", get(t, e.Store, "holder").WaitTTL, 0)
	Do(t, e.Store, claim.KeepWaiting{IDs: []string{"a", "none"}})
	kept := get(t, e.Store, "a")
	if kept.Deadline <= first.Deadline || kept.Version <= first.Version || row(t, e.Store, "r").Version != kept.Version {
		t.Errorf("kept waiting from %+v to %+v", first, kept)
	}
	first.Deadline, first.Version = kept.Deadline, kept.Version
	same(t, "kept waiting", kept, first)
	Do(t, e.Store, released("holder"))
	granted := get(t, e.Store, "a")
	equal(t, "status", granted.Status, claim.Active)
	equal(t, "deadline of the grant", granted.Deadline, kept.Deadline)
	stored(t, e.Store, "renewed", Do(t, e.Store, claim.Renew{ID: "a", TTL: century})[0])
}

func abandonedAre(t testing.TB, s db.Store, limit int, want ...string) {
	t.Helper()
	got := overdue(t, s, db.DueQuery{Waiters: limit}).Waiters
	if !slices.Equal(got, want) {
		t.Errorf("abandoned are %q, want %q", got, want)
	}
}

func abandoned(t testing.TB, e Engine) {
	abandonedAre(t, e.Store, 10)
	Do(t, e.Store, lasting(exclusive("holder", "r")), lasting(exclusive("other", "s")), exclusive("forever", "r"))
	DoAt(t, e.Store, -time.Minute, patient("late", "r", 10*time.Second), patient("kept", "s", 10*time.Second), patient("gone", "r", time.Second))
	DoAt(t, e.Store, -time.Minute, patient("later", "s", 50*time.Second), patient("now", "r", time.Minute-time.Second), patient("patient", "r", time.Hour))
	Do(t, e.Store, patient("held", "t", time.Microsecond), withdrawn("gone"), claim.KeepWaiting{IDs: []string{"kept"}})
	abandonedAre(t, e.Store, 10, "late", "later", "now")
	Do(t, e.Store, claim.Expire{Waiters: []string{"late", "later", "kept", "patient", "forever", "held"}})
	abandonedAre(t, e.Store, 10, "now")
	for _, id := range []string{"late", "later"} {
		status(t, e.Store, id, claim.Aborted)
		equal(t, "reason", get(t, e.Store, id).Reason, claim.ReasonAbandoned)
	}
	for _, id := range []string{"kept", "patient", "forever", "now"} {
		status(t, e.Store, id, claim.Waiting)
	}
	Do(t, e.Store, released("holder"))
	status(t, e.Store, "forever", claim.Active)
	Do(t, e.Store, released("forever"))
	status(t, e.Store, "now", claim.Aborted)
	status(t, e.Store, "patient", claim.Active)
	abandonedAre(t, e.Store, 10)
}

func abandonedLimit(t testing.TB, e Engine) {
	cmds := []claim.Command{lasting(exclusive("holder", "r"))}
	var want []string
	for i := range 9 {
		want = append(want, fmt.Sprint(9-i))
		cmds = append(cmds, patient(want[i], "r", time.Duration(i+1)*time.Second))
	}
	DoAt(t, e.Store, -time.Minute, cmds...)
	for limit := 1; limit <= 10; limit++ {
		abandonedAre(t, e.Store, limit, want[:min(limit, 9)]...)
	}
}

func nextDueOfWaits(t testing.TB, e Engine) {
	const idle = time.Minute
	held := Do(t, e.Store, exclusive("holder", "r"), exclusive("forever", "r"))[0].Deadline
	nextDueIs(t, e.Store, "of waits without an end", idle, held)
	late := Do(t, e.Store, patient("late", "r", 50*time.Minute))[0].Deadline
	nextDueIs(t, e.Store, "of one wait", idle, late)
	soon := Do(t, e.Store, patient("soon", "r", 10*time.Minute))[0].Deadline
	nextDueIs(t, e.Store, "of two waits", idle, soon)
	Do(t, e.Store, withdrawn("soon"))
	nextDueIs(t, e.Store, "after one has left", idle, late)
	DoAt(t, e.Store, 5*time.Minute, claim.KeepWaiting{IDs: []string{"late"}})
	nextDueIs(t, e.Store, "of one that was kept waiting", idle, get(t, e.Store, "late").Deadline)
	past := DoAt(t, e.Store, -time.Hour, patient("past", "r", time.Second))[0].Deadline
	nextDueIs(t, e.Store, "of one that is past", idle, past.Add(idle))
}

func waitsOfAre(t testing.TB, s db.Store, owners []string, want ...string) {
	t.Helper()
	var keys []claim.OwnerKey
	for _, owner := range owners {
		keys = append(keys, claim.OwnerKey{Owner: owner})
	}
	claims, err := s.WaitsOf(t.Context(), keys, 100)
	must(t, err)
	got := ids(claims)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q wait by %q, want %q", owners, got, want)
	}
}

func waitsOf(t testing.TB, e Engine) {
	owned := func(cmd claim.Create, owner string) claim.Create {
		cmd.Owner = owner
		return cmd
	}
	waitsOfAre(t, e.Store, nil)
	waitsOfAre(t, e.Store, []string{"a", ""})
	Do(t, e.Store, owned(exclusive("h1", "r"), "a"), owned(exclusive("h2", "s"), "b"), owned(shared("h3", "t"), "a"))
	cmd := owned(patient("w1", "s", time.Minute), "a")
	cmd.UserData, cmd.Value = []byte("1"), "v"
	want := Do(t, e.Store, cmd, owned(exclusive("w2", "r"), "b"), owned(exclusive("w3", "r"), "a"), owned(exclusive("w4", "t"), ""), owned(shared("w5", "t"), "A"))[0]
	Do(t, e.Store, owned(exclusive("g1", "u"), "a"), owned(exclusive("g2", "u"), "b"), released("g1")) // in one transaction
	waitsOfAre(t, e.Store, []string{"a"}, "w1", "w3")
	waitsOfAre(t, e.Store, []string{"b"}, "w2")
	waitsOfAre(t, e.Store, []string{"A"}, "w5")
	waitsOfAre(t, e.Store, []string{"a", "nobody", "b", "A"}, "w1", "w2", "w3", "w5")
	waitsOfAre(t, e.Store, []string{"a "})
	waitsOfAre(t, e.Store, []string{""})
	claims, err := e.Store.WaitsOf(t.Context(), []claim.OwnerKey{{Owner: "a"}, {Session: "a"}}, 100)
	must(t, err)
	want.UserData, want.Value = nil, ""
	for _, c := range claims {
		if c.ID == "w1" {
			same(t, "w1", c, want)
		}
	}
	Do(t, e.Store, released("h1"), withdrawn("w3"), claim.KeepWaiting{IDs: []string{"w1"}}) // w2 holds
	waitsOfAre(t, e.Store, []string{"a", "b"}, "w1")
	Do(t, e.Store, released("h2"))
	waitsOfAre(t, e.Store, []string{"a", "b"})
	Do(t, e.Store, owned(exclusive("w2 again", "r"), "a"), owned(exclusive("twice", "r"), "a"), withdrawn("twice"))
	waitsOfAre(t, e.Store, []string{"a"}, "w2 again")
}

func waitsOfLimit(t testing.TB, e Engine) {
	cmds := []claim.Command{exclusive("holder", "r")}
	var owners []claim.OwnerKey
	for i := range 9 {
		cmd := exclusive(fmt.Sprint(i), "r")
		cmd.Owner = fmt.Sprint(i % 3)
		owners = append(owners, claim.OwnerKey{Owner: cmd.Owner})
		cmds = append(cmds, cmd)
	}
	Do(t, e.Store, cmds...)
	for limit := 1; limit <= 10; limit++ {
		claims, err := e.Store.WaitsOf(t.Context(), owners[:3], limit)
		must(t, err)
		equal(t, fmt.Sprint("waits, up to ", limit), len(claims), min(limit, 9))
	}
}

func waitsOfSessions(t testing.TB, e Engine) {
	for _, id := range []string{"s1", "s2"} {
		Do(t, e.Store, claim.Attach{Session: claim.Session{ID: id, Owner: "o", Secret: make([]byte, 32), TTL: time.Hour}, Server: "here"})
	}
	of := func(session, id, resource string) claim.Create {
		return claim.Create{ID: id, Resource: resource, Owner: "o", Session: session, Server: "here"}
	}
	Do(t, e.Store, of("s1", "h1", "r"), of("s2", "h2", "s"), of("s1", "w1", "s"), of("s2", "w2", "r"))
	waitsOfAre(t, e.Store, []string{"o"}) // they are their sessions'
	for session, want := range map[string][]string{"s1": {"w1"}, "s2": {"w2"}, "s3": {}} {
		claims, err := e.Store.WaitsOf(t.Context(), []claim.OwnerKey{{Session: session}}, 10)
		must(t, err)
		equal(t, "waits of "+session, ids(claims), want)
	}
	Do(t, e.Store, withdrawn("w2"))
	claims, err := e.Store.WaitsOf(t.Context(), []claim.OwnerKey{{Session: "s1"}, {Session: "s2"}, {Owner: "o"}}, 10)
	must(t, err)
	equal(t, "waits of both", ids(claims), []string{"w1"})
}
