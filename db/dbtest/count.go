package dbtest

import (
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var countCases = []Case{
	{Name: "CountsOfIdentities", Run: countsOfIdentities},
	{Name: "CountsOfOtherServers", Run: countsOfOtherServers, Servers: true},
	{Name: "CountsLeaveOut", Run: countsLeaveOut},
}

// doAs carries out commands of an identity in one transaction.
func doAs(t testing.TB, s db.Store, identity string, cmds ...claim.Command) {
	t.Helper()
	doFor(t, s, db.Batch{Requests: requests(identity, cmds...)})
}

// counted checks how many claims an identity has, without some.
func counted(t testing.TB, s db.Store, identity string, active, waiting int, except ...string) {
	t.Helper()
	got, err := s.Usage(t.Context(), identity, except)
	must(t, err)
	equal(t, "counts of "+identity, got, claim.Count{Active: active, Waiting: waiting})
}

func countsOfIdentities(t testing.TB, e Engine) {
	counted(t, e.Store, "cert:a", 0, 0)
	doAs(t, e.Store, "cert:a", exclusive("a1", "r"), exclusive("a2", "r"), exclusive("a3", "r"), shared("a4", "s"), shared("a5", "s"))
	doAs(t, e.Store, "cert:b", shared("b1", "s"), exclusive("b2", "r"))
	doAs(t, e.Store, "cert:A", exclusive("A1", "upper")) // names are bytes
	doAs(t, e.Store, "cert:a ", exclusive("A2", "blank"))
	Do(t, e.Store, exclusive("n1", "nobody's"))
	counted(t, e.Store, "cert:a", 3, 2)
	counted(t, e.Store, "cert:b", 1, 1)
	counted(t, e.Store, "cert:A", 1, 0)
	counted(t, e.Store, "", 0, 0) // claims of nobody are not counted
	counted(t, e.Store, "cert:nobody", 0, 0)
	doAs(t, e.Store, "cert:root", released("a1"), withdrawn("a3"), claim.Renew{ID: "a2", TTL: century})
	counted(t, e.Store, "cert:a", 3, 0)
	doAs(t, e.Store, "cert:a", exclusive("a6", "once"), released("a6")) // made and ended at once
	counted(t, e.Store, "cert:a", 3, 0)
	DoAt(t, e.Store, 2*century, claim.Expire{Resources: []string{"r", "upper"}})
	counted(t, e.Store, "cert:A", 0, 0)
	e.Store = e.Reopen(t)
	counted(t, e.Store, "cert:a", 2, 0)
	counted(t, e.Store, "cert:b", 2, 0)
	Do(t, e.Store, attach("x", "s1"))
	doAs(t, e.Store, "cert:s", bound("s1", "t", "x"), bound("s2", "r", "x"))
	counted(t, e.Store, "cert:s", 1, 1)
	Do(t, e.Store, claim.EndSession{ID: "x", Server: "s1", Active: claim.Released, Waiting: claim.Withdrawn})
	counted(t, e.Store, "cert:s", 0, 0)
}

func countsOfOtherServers(t testing.TB, e Engine) {
	other := e.Second(t)
	doAs(t, other, "cert:a", exclusive("1", "r"), exclusive("2", "r"))
	counted(t, e.Store, "cert:a", 1, 1)
	doAs(t, e.Store, "cert:a", released("1"))
	for _, s := range []db.Store{e.Store, other} {
		counted(t, s, "cert:a", 1, 0)
	}
}

// countsLeaveOut: a count leaves out the claims with some ids, where they are live and the identity's.
func countsLeaveOut(t testing.TB, e Engine) {
	doAs(t, e.Store, "cert:a", exclusive("a1", "r"), exclusive("a2", "r"), shared("a3", "s"), exclusive("a4", "ended"), released("a4"))
	doAs(t, e.Store, "cert:b", exclusive("b1", "r"))
	Do(t, e.Store, exclusive("n1", "nobody's"))
	counted(t, e.Store, "cert:a", 2, 1)
	counted(t, e.Store, "cert:a", 1, 1, "a3", "a4", "b1", "n1", "none")
	counted(t, e.Store, "cert:a", 0, 0, "a1", "a2", "a3")
	counted(t, e.Store, "", 0, 0, "n1")
}
