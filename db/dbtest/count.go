package dbtest

import (
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

var countCases = []Case{
	{Name: "CountsOfIdentities", Run: countsOfIdentities},
	{Name: "CountsOfOtherServers", Run: countsOfOtherServers, Servers: true},
}

// doAs carries out commands of an identity, whose claims are counted, in one transaction.
func doAs(t testing.TB, s db.Store, identity string, cmds ...claim.Command) {
	t.Helper()
	doFor(t, s, db.Batch{Requests: requests(identity, cmds...), Unknown: []string{identity}})
}

// counted checks how many claims an identity has.
func counted(t testing.TB, s db.Store, identity string, active, waiting int) {
	t.Helper()
	got := doFor(t, s, db.Batch{Unknown: []string{"cert:nobody", identity}}).Counts
	equal(t, "counts of "+identity, got[identity], claim.Count{Active: active, Waiting: waiting})
	if len(got) != 2 || got["cert:nobody"] != (claim.Count{}) {
		t.Errorf("%d counts, of nobody %+v", len(got), got["cert:nobody"])
	}
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

// IdentityClaims checks, by what rows returns, how many claims an engine keeps in its lists of the claims of identities: those
// are in it alone that were made while they were counted, and none outlasts its claim for long.
func IdentityClaims(t testing.TB, s db.Store, rows func() int) {
	t.Helper()
	do := func(counted []string, cmds ...claim.Command) {
		t.Helper()
		doFor(t, s, db.Batch{Requests: requests("cert:a", cmds...), Unknown: counted})
	}
	lock := func(id string) claim.Command {
		return claim.Acquire{ID: id, Resource: "of " + id, Owner: "o", TTL: time.Hour}
	}
	do(nil, lock("not counted"))
	equal(t, "rows where nobody is counted", rows(), 0)
	do([]string{"cert:b"}, lock("another one is"))
	equal(t, "rows where another one is counted", rows(), 0)
	do([]string{"cert:a"}, lock("1"), lock("2"), lock("3"))
	equal(t, "rows", rows(), 3)
	do(nil, claim.End{ID: "1"})
	equal(t, "rows after an end", rows(), 3)
	do([]string{"cert:a"}, lock("4"))
	equal(t, "rows after somebody has counted, and so forgotten what has ended", rows(), 3)
	do(nil, claim.End{ID: "2"}, claim.End{ID: "3"})
	_, err := s.Prune(t.Context(), now(t, s).Wall.Add(time.Hour), 1_000_000)
	must(t, err)
	equal(t, "rows after the claims were pruned", rows(), 1)
}
