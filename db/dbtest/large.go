package dbtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var largeCases = []Case{
	{Name: "LargestClaims", Run: largestClaims},
	{Name: "LongDataIsKept", Run: longDataIsKept},
	{Name: "ManyDueAreBounded", Run: manyDueAreBounded},
	{Name: "WaitsOfMany", Run: waitsOfMany},
}

// largest is a claim of the maximum size, in bytes that SQL escapes.
func largest(i int) claim.Create {
	name := func(n int) string { return fmt.Sprintf("%0*d", n, i) }
	quotes := strings.Repeat("'", 1000)
	return longer(claim.Create{ID: name(128), Resource: quotes + name(24), Owner: quotes + name(24), TTL: century, WaitTTL: century})
}

// largestClaims makes many of the largest claims in one transaction, waiters for them in another, and ends all
// that hold in a third.
func largestClaims(t testing.TB, e Engine) {
	const n = 100
	position, _, err := e.Store.End(t.Context(), true)
	must(t, err)
	var make, wait, end []claim.Command
	for i := range n {
		waiter := largest(i)
		waiter.ID = "w" + waiter.ID[1:]
		make, wait = append(make, largest(i)), append(wait, waiter)
		end = append(end, claim.End{ID: largest(i).ID, Reason: strings.Repeat("'", 1024)})
	}
	for _, cmds := range [][]claim.Command{make, wait, end} {
		Do(t, e.Store, cmds...)
	}
	for i := range n {
		ended, holds := get(t, e.Store, largest(i).ID), get(t, e.Store, wait[i].(claim.Create).ID)
		want := largest(i)
		for _, c := range []claim.Claim{ended, holds} {
			if c.Resource != want.Resource || c.Owner != want.Owner || c.Value != want.Value || string(c.UserData) != string(want.UserData) {
				t.Fatalf("%d: the claim %.10s differs", i, c.ID)
			}
		}
		if ended.Status != claim.Released || holds.Status != claim.Active {
			t.Fatalf("%d: %s, then %s", i, ended.Status, holds.Status)
		}
	}
	commits, err := e.Store.Changes(t.Context(), position, true)
	must(t, err)
	var seen []string
	for _, c := range commits {
		must(t, position.Follow(c))
		for _, change := range c.Changes {
			seen = append(seen, fmt.Sprint(change.After.ID[:1], change.After.Status))
		}
	}
	equal(t, "number of changes in the feed", len(seen), 4*n)
	equal(t, "the last two", seen[len(seen)-2:], []string{"0released", "wactive"})
}

// longDataIsKept changes a claim whose long data nobody needs, in each way that there is.
func longDataIsKept(t testing.TB, e Engine) {
	held, waits := longer(exclusive("held", "r")), longer(exclusive("waits", "r"))
	waits.WaitTTL = time.Hour
	Do(t, e.Store, held, waits, longer(shared("s1", "shared")), longer(shared("s2", "shared")))
	must(t, Update(t.Context(), e.Store, func(tx db.Tx) error {
		queues, err := tx.Load(db.Wanted{Resources: []string{"r"}, Claims: []string{"held", "s1", "waits"}, WholeClaims: []string{"waits"}})
		if err != nil {
			return err
		}
		for id, brief := range map[string]bool{"held": true, "s1": true, "waits": false} {
			if c := queues.QueueOf(id).Find(id); c.Brief != brief || brief == (len(c.Value) == longData) || brief == (len(c.UserData) == longData) {
				t.Errorf("%s: brief is %v, with %d bytes", id, c.Brief, len(c.Value)+len(c.UserData))
			}
		}
		return nil
	}))
	Do(t, e.Store, claim.KeepWaiting{IDs: []string{"waits"}}, claim.Renew{ID: "held", TTL: time.Hour}, claim.Renew{ID: "s1", TTL: time.Minute})
	equal(t, "length of a renewal's answer", len(Do(t, e.Store, claim.Renew{ID: "s2", TTL: time.Minute})[0].Value), longData)
	due := longer(shared("s3", "due"))
	due.TTL = 0
	Do(t, e.Store, due)
	equal(t, "length of the answer to the renewal of a due claim", len(Do(t, e.Store, claim.Renew{ID: "s3", TTL: time.Minute})[0].Value), longData)
	equal(t, "whether a brief end is brief", Do(t, e.Store, claim.End{ID: "s3", Brief: true})[0].Brief, true)
	DoAt(t, e.Store, 2*time.Hour, claim.Expire{Resources: []string{"r", "shared"}}) // and what waits is granted, unread
	status(t, e.Store, "held", claim.Expired)
	status(t, e.Store, "s1", claim.Active) // no transaction has read it
	for _, id := range []string{"held", "waits", "s1", "s2", "s3"} {
		if c := get(t, e.Store, id); c.Value != held.Value || string(c.UserData) != string(held.UserData) {
			t.Errorf("%s has %d and %d bytes", id, len(c.Value), len(c.UserData))
		}
	}
	lock := claim.Acquire{ID: "l", Resource: "lock", Owner: "o", TTL: time.Hour, Value: held.Value}
	Do(t, e.Store, lock)
	equal(t, "length of a renewed claim's value", len(Do(t, e.Store, lock)[0].Value), longData)
	lock.Value = "short"
	Do(t, e.Store, lock)
	equal(t, "value", get(t, e.Store, "l").Value, "short")
	heir := longer(exclusive("heir", "lock"))
	heir.Owner = lock.Owner
	Do(t, e.Store, heir)
	lock.Value = ""
	Do(t, e.Store, claim.End{ID: "l"}, lock) // which renews what has just been granted, unread
	c := get(t, e.Store, "heir")
	equal(t, "lengths of the value and the data of a claim renewed without a value", []int{len(c.Value), len(c.UserData)}, []int{0, longData})
}

// manyDueAreBounded has more shared holders due than one transaction loads.
func manyDueAreBounded(t testing.TB, e Engine) {
	const resources, each = 6, db.MaxDue / 4
	for r := range resources {
		var cmds []claim.Command
		for i := range each {
			cmds = append(cmds, shared(fmt.Sprint(r, "-", i), fmt.Sprint("r", r)))
		}
		dueAgo(t, e.Store, time.Minute, cmds...) // longer than the clocks of a cluster's nodes may differ
	}
	names := []string{"r0", "r1", "r2", "r3", "r4", "r5"}
	left := func() (n int) {
		for _, name := range names {
			n += row(t, e.Store, name).Shared
		}
		return n
	}
	for before := left(); before > 0; {
		Do(t, e.Store, claim.Expire{Resources: names})
		now := left()
		if ended := before - now; ended == 0 || ended > db.MaxDue+resources {
			t.Fatalf("one transaction has ended %d", ended)
		}
		before = now
	}
}

// waitsOfMany asks for the waits of more owners, with the longest names, than one request to a database may name.
func waitsOfMany(t testing.TB, e Engine) {
	const n = 1000
	owners := []claim.OwnerKey{{Session: "none"}}
	Do(t, e.Store, exclusive("holder", "r"))
	for i := range n {
		c := largest(i)
		c.Resource, c.UserData, c.Value = "r", nil, ""
		if i%100 == 0 {
			Do(t, e.Store, c)
		}
		owners = append(owners, claim.OwnerKey{Owner: c.Owner})
	}
	for _, limit := range []int{n, 3} {
		waits, err := e.Store.WaitsOf(t.Context(), owners, limit)
		must(t, err)
		equal(t, "number of waits", len(waits), min(limit, n/100))
	}
}
