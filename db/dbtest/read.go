package dbtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var readCases = []Case{
	{Name: "Due", Run: due},
	{Name: "DueLimit", Run: dueLimit},
	{Name: "NextDue", Run: nextDue},
	{Name: "NextDueOfTypes", Run: nextDueOfTypes},
	{Name: "Holder", Run: holder},
	{Name: "LongestHolder", Run: longestHolder},
	{Name: "Held", Run: held},
	{Name: "HeldPages", Run: heldPages},
	{Name: "Live", Run: live},
	{Name: "Count", Run: counts},
	{Name: "OldestWaiting", Run: oldestWaiting},
	{Name: "HistoryCutoff", Run: historyCutoff},
}

// dueAgo makes holders whose leases ran out some time ago, and claims that wait for them.
func dueAgo(t testing.TB, s db.Store, ago time.Duration, cmds ...claim.Command) {
	t.Helper()
	DoAt(t, s, -time.Hour-ago, cmds...)
}

func overdue(t testing.TB, s db.Store, query db.DueQuery) db.Overdue {
	t.Helper()
	o, err := s.Due(t.Context(), query)
	must(t, err)
	if o.Next != 0 && query.Names() > 0 {
		t.Errorf("a query for names is answered with the time %d", o.Next)
	}
	return o
}

func dueNames(t testing.TB, s db.Store, idle time.Duration, limit int) []string {
	t.Helper()
	names := overdue(t, s, db.DueQuery{Idle: idle, Resources: limit}).Resources
	slices.Sort(names)
	return names
}

func due(t testing.TB, e Engine) {
	dueAgo(t, e.Store, time.Second, exclusive("a", "contended"), exclusive("b", "contended"))
	dueAgo(t, e.Store, time.Second, shared("c", "contended shared"), shared("d", "contended shared"), exclusive("e", "contended shared"))
	dueAgo(t, e.Store, time.Second, exclusive("f", "idle"))
	dueAgo(t, e.Store, time.Minute, exclusive("g", "long idle"))
	dueAgo(t, e.Store, time.Minute, shared("h", "long idle shared"), shared("i", "long idle shared"))
	dueAgo(t, e.Store, -time.Minute, exclusive("j", "live"), exclusive("k", "live"), shared("l", "live shared"))
	dueAgo(t, e.Store, time.Minute, exclusive("m", "ended"))
	Do(t, e.Store, claim.Expire{Resources: []string{"ended"}})
	dueAgo(t, e.Store, time.Minute, exclusive("n", "renewed"))
	Do(t, e.Store, claim.Renew{ID: "n", TTL: time.Minute})

	for idle, want := range map[time.Duration][]string{
		time.Hour:        {"contended", "contended shared"},
		30 * time.Second: {"contended", "contended shared", "long idle", "long idle shared"},
		0:                {"contended", "contended shared", "idle", "long idle", "long idle shared"},
	} {
		equal(t, fmt.Sprint("due when idle for ", idle), dueNames(t, e.Store, idle, 100), want)
	}
	for _, name := range dueNames(t, e.Store, 0, 100) {
		Do(t, e.Store, claim.Expire{Resources: []string{name}})
	}
	equal(t, "due after the sweep", len(dueNames(t, e.Store, 0, 100)), 0)
	status(t, e.Store, "b", claim.Active)
}

// dueLimit has resources of every type, and more holders than resources.
func dueLimit(t testing.TB, e Engine) {
	var cmds []claim.Command
	for i := range 9 {
		for j := range 3 {
			cmd := shared(fmt.Sprint(i, j), fmt.Sprint("r", i))
			cmd.Type = claim.Type(i % 3)
			cmds = append(cmds, cmd)
		}
	}
	dueAgo(t, e.Store, time.Second, cmds...)
	for limit, want := range map[int]int{1: 1, 4: 4, 9: 9, 10: 9} {
		got := len(slices.Compact(dueNames(t, e.Store, 0, limit)))
		equal(t, fmt.Sprint("resources due, up to ", limit), got, want)
	}
	for range 5 {
		for _, name := range dueNames(t, e.Store, 0, 2) {
			Do(t, e.Store, claim.Expire{Resources: []string{name}})
		}
	}
	count(t, e.Store, db.Census{Finished: 27})
}

func nextDueIs(t testing.TB, s db.Store, what string, idle time.Duration, want claim.Time) {
	t.Helper()
	before := now(t, s)
	o := overdue(t, s, db.DueQuery{Idle: idle})
	next, at := o.Next, o.Now
	if want != 0 { // a lease is due later than its deadline where clocks may differ
		want = want.Add(at.Skew)
	}
	equal(t, "next due "+what, next, want)
	if after := now(t, s); at.Lease < before.Lease || at.Wall < before.Wall || at.Lease > after.Lease || at.Wall > after.Wall {
		t.Errorf("next due %s: its time is %+v, between %+v and %+v", what, at, before, after)
	}
}

func nextDue(t testing.TB, e Engine) {
	const idle = 30 * time.Minute
	nextDueIs(t, e.Store, "of no leases", idle, 0)
	late := DoAt(t, e.Store, time.Hour, exclusive("late", "r"))[0].Deadline
	nextDueIs(t, e.Store, "of one", idle, late)
	soon := Do(t, e.Store, exclusive("soon", "contended"), exclusive("w", "contended"))[0].Deadline
	nextDueIs(t, e.Store, "of two", idle, soon)
	DoAt(t, e.Store, -2*time.Hour, shared("s1", "shared"))
	out := DoAt(t, e.Store, -time.Hour-time.Minute, shared("s2", "shared"), claim.Renew{ID: "s1", TTL: time.Hour})[0].Deadline
	nextDueIs(t, e.Store, "when a lease has run out", idle, out.Add(idle))
	nextDueIs(t, e.Store, "when idle leases are left alone", 3*time.Hour, soon)
	nextDueIs(t, e.Store, "at once", 0, out)
	Do(t, e.Store, claim.Expire{Resources: []string{"shared"}})
	nextDueIs(t, e.Store, "after the sweep", idle, soon)
	again := Do(t, e.Store, claim.Renew{ID: "soon", TTL: time.Minute})[0].Deadline
	nextDueIs(t, e.Store, "after a renewal", idle, again)
	granted := Do(t, e.Store, released("soon"), claim.Renew{ID: "w", TTL: 10 * time.Minute})[1].Deadline
	nextDueIs(t, e.Store, "after a grant", idle, granted)
	Do(t, e.Store, released("w"))
	nextDueIs(t, e.Store, "after a release", idle, late)
	Do(t, e.Store, released("late"))
	nextDueIs(t, e.Store, "after all were released", idle, 0)
}

// nextDueOfTypes makes leases of every type in both modes, and makes each of them the next one that is due.
func nextDueOfTypes(t testing.TB, e Engine) {
	for i, kind := range []claim.Type{claim.Presence, claim.Untyped, claim.Lock, claim.Untyped, claim.Presence, claim.Lock} {
		cmd := exclusive(fmt.Sprint(i), fmt.Sprint("r", i))
		cmd.Type, cmd.Units = kind, EitherUnits(i)
		nextDueIs(t, e.Store, fmt.Sprint("of type ", kind), time.Minute, DoAt(t, e.Store, -time.Duration(i)*time.Minute, cmd)[0].Deadline)
	}
}

func holderIs(t testing.TB, s db.Store, resource, want string) {
	t.Helper()
	c, err := s.Holder(t.Context(), resource)
	if errors.Is(err, claim.ErrNotFound) {
		err = nil
	}
	must(t, err)
	equal(t, "holder of "+resource, c.ID, want)
}

func holder(t testing.TB, e Engine) {
	holderIs(t, e.Store, "r", "")
	c := Do(t, e.Store, exclusive("x", "r"), exclusive("y", "r"))[0]
	got, err := e.Store.Holder(t.Context(), "r")
	must(t, err)
	same(t, "exclusive holder", got, c)
	holderIs(t, e.Store, "other", "")
	Do(t, e.Store, released("x"))
	holderIs(t, e.Store, "r", "y")
	Do(t, e.Store, released("y"))
	holderIs(t, e.Store, "r", "")
	c = Do(t, e.Store, shared("s", "r"), exclusive("z", "r"))[0]
	got, err = e.Store.Holder(t.Context(), "r")
	must(t, err)
	same(t, "shared holder", got, c)
	Do(t, e.Store, withdrawn("s"))
	holderIs(t, e.Store, "r", "z")
	// A holder that is due holds the resource until it is expired.
	dueAgo(t, e.Store, time.Minute, exclusive("due", "q"))
	holderIs(t, e.Store, "q", "due")
	Do(t, e.Store, claim.Expire{Resources: []string{"q"}})
	holderIs(t, e.Store, "q", "")
}

// longestHolder has shared holders; the first of them falls due last, has the last id, and was changed last.
func longestHolder(t testing.TB, e Engine) {
	first, second, third := shared("z", "r"), shared("a", "r"), shared("m", "r")
	first.TTL, second.TTL = 3*time.Hour, time.Minute
	DoAt(t, e.Store, -time.Second, first, second)
	Do(t, e.Store, third, claim.Renew{ID: "z", TTL: 4 * time.Hour})
	holderIs(t, e.Store, "r", "z")
	Do(t, e.Store, released("z"), claim.Renew{ID: "a", TTL: 5 * time.Hour})
	holderIs(t, e.Store, "r", "a")
}

func held(t testing.TB, e Engine) {
	want := map[claim.Type][]string{}
	for _, kind := range []claim.Type{claim.Untyped, claim.Lock, claim.Presence} {
		for i := range 5 {
			id := fmt.Sprint(kind, "-", i)
			resource := "r" + id
			hold := claim.Create{ID: id, Resource: resource, Type: kind, TTL: time.Hour, Units: EitherUnits(i)}
			wait := claim.Create{ID: "w" + id, Resource: resource, Type: kind, TTL: time.Hour}
			gone := claim.Create{ID: "g" + id, Resource: "g" + resource, Type: kind, TTL: time.Hour}
			Do(t, e.Store, hold, wait, gone)
			Do(t, e.Store, released(gone.ID))
			want[kind] = append(want[kind], id)
		}
	}
	for kind, want := range want {
		claims, err := e.Store.Live(t.Context(), db.LiveOf{Held: &kind}, db.Page{})
		must(t, err)
		got := ids(claims)
		slices.Sort(got)
		equal(t, fmt.Sprint("held, type ", kind), got, want)
		for _, c := range claims {
			stored(t, e.Store, "held", c)
		}
	}
	// A renewal may change the type.
	Do(t, e.Store, claim.Acquire{Resource: "r1-0", Type: claim.Presence, TTL: time.Hour})
	if claims, err := e.Store.Live(t.Context(), db.LiveOf{Held: new(claim.Lock)}, db.Page{}); err != nil || len(claims) != 4 {
		t.Errorf("%d locks held (%v)", len(claims), err)
	}
}

// heldPages has claims whose ids are in another order than their creation, their deadlines and
// their resources.
func heldPages(t testing.TB, e Engine) {
	want := []string{"A", "B", "a", "aa", "b", "c-1", "c.1", "d", "e", "f"}
	for i, at := range []int{3, 9, 0, 5, 1, 7, 2, 8, 4, 6} {
		id := want[at]
		Do(t, e.Store,
			claim.Create{ID: id, Resource: fmt.Sprint("r", 9-i), Type: claim.Lock, TTL: time.Duration(10-at%4) * time.Hour, Value: strings.Repeat("v", 100)},
			claim.Create{ID: "w" + id, Resource: fmt.Sprint("r", 9-i), Type: claim.Lock, TTL: time.Hour},
			claim.Create{ID: "p" + id, Resource: fmt.Sprint("p", i), Type: claim.Presence, TTL: time.Hour})
	}
	page := func(p db.Page) []string {
		t.Helper()
		claims, err := e.Store.Live(t.Context(), db.LiveOf{Held: new(claim.Lock)}, p)
		must(t, err)
		for _, c := range claims {
			stored(t, e.Store, "a page", c)
		}
		return ids(claims)
	}
	for _, limit := range []int{1, 3, 10, 100} {
		var all []string
		for p := (db.Page{Limit: limit}); len(all) <= len(want); {
			got := page(p)
			if len(got) == 0 {
				break
			}
			all = append(all, got...)
			p.After = got[len(got)-1]
		}
		equal(t, fmt.Sprint("pages of ", limit), all, want)
	}
	equal(t, "between", page(db.Page{After: "a ", Limit: 2}), []string{"aa", "b"})
	equal(t, "with a budget", page(db.Page{After: "B", Limit: 5, Bytes: 150}), []string{"a", "aa", "b"})
	equal(t, "behind the last", page(db.Page{After: "f", Limit: 5}), []string{})
	Do(t, e.Store, claim.Renew{ID: "a", TTL: 50 * time.Hour}, released("aa"), released("waa"))
	equal(t, "after changes", page(db.Page{After: "B", Limit: 2}), []string{"a", "b"})
}

// live has claims whose ids are in another order than their creation, with and without values that
// are too long.
func live(t testing.TB, e Engine) {
	long := strings.Repeat("v", db.MaxFeedValue)
	var want []string
	for i, id := range []string{"m", "b", "x", "a", "B"} {
		hold, wait := exclusive(id, fmt.Sprint("r", i%2)), exclusive(id+"+", fmt.Sprint("r", i%2))
		hold.Value, hold.UserData, wait.Value = long, []byte("{}"), long+"v"
		share := shared("s"+id, "shared")
		Do(t, e.Store, hold, wait, share, exclusive("gone"+id, "gone"), exclusive("ended"+id, "ended"))
		Do(t, e.Store, released("gone"+id), withdrawn("ended"+id))
		want = append(want, id, id+"+", "s"+id)
	}
	slices.Sort(want)
	page := func(resource *string, p db.Page) []string {
		t.Helper()
		claims, err := e.Store.Live(t.Context(), db.LiveOf{Resource: resource}, p)
		must(t, err)
		for _, c := range claims {
			whole := get(t, e.Store, c.ID)
			whole.UserData = nil
			if len(whole.Value) > db.MaxFeedValue {
				whole.Value = ""
			}
			same(t, "live claim", c, whole)
		}
		return ids(claims)
	}
	pages := func(resource *string, limit int) (all []string) {
		t.Helper()
		for p := (db.Page{Limit: limit}); len(all) <= len(want); {
			got := page(resource, p)
			all = append(all, got...)
			if len(got) > limit {
				t.Errorf("a page of %d has %d claims", limit, len(got))
			}
			if len(got) == 0 {
				break
			}
			p.After = got[len(got)-1]
		}
		return all
	}
	for _, limit := range []int{1, 4, 100} {
		equal(t, fmt.Sprint("pages of ", limit), pages(nil, limit), want)
		for _, resource := range []string{"r0", "r1", "shared", "gone", "none"} {
			var of []string
			for _, id := range want {
				if get(t, e.Store, id).Resource == resource {
					of = append(of, id)
				}
			}
			equal(t, fmt.Sprintf("pages of %d of %s", limit, resource), pages(&resource, limit), of)
		}
	}
	equal(t, "with a budget", len(page(nil, db.Page{Limit: 100, Bytes: 1})), 2)
}

func counts(t testing.TB, e Engine) {
	count(t, e.Store, db.Census{})
	Do(t, e.Store, exclusive("a", "r"), exclusive("b", "r"), shared("c", "r"), shared("d", "q"))
	count(t, e.Store, db.Census{Active: 2, Waiting: 2})
	for i, end := range []claim.Status{claim.Released, claim.Aborted, claim.Withdrawn, claim.Revoked} {
		id := fmt.Sprint(i)
		Do(t, e.Store, exclusive(id, "x"+id))
		Do(t, e.Store, claim.SetStatus{ID: id, Status: end})
	}
	dueAgo(t, e.Store, time.Second, exclusive("due", "due"))
	count(t, e.Store, db.Census{Active: 3, Waiting: 2, Finished: 4})
	Do(t, e.Store, claim.Expire{Resources: []string{"due"}})
	count(t, e.Store, db.Census{Active: 2, Waiting: 2, Finished: 5})
	Do(t, e.Store, attach("s1", "here"), attach("s2", "here"))
	count(t, e.Store, db.Census{Active: 2, Waiting: 2, Finished: 5, Sessions: 2})
}

func oldestWaiting(t testing.TB, e Engine) {
	is := func(what, id string) {
		t.Helper()
		var want claim.Time
		if id != "" {
			want = get(t, e.Store, id).Created
		}
		equal(t, what, census(t, e.Store, 0).OldestWaiting, want)
	}
	is("nothing", "")
	DoAt(t, e.Store, -24*time.Hour, lasting(exclusive("holder", "z")), lasting(shared("sharer", "s")))
	is("holders alone", "")
	DoAt(t, e.Store, -2*time.Hour, exclusive("first", "z"))
	DoAt(t, e.Store, -time.Hour, exclusive("second", "z"), exclusive("behind", "s"))
	Do(t, e.Store, lasting(exclusive("new", "a")), exclusive("last", "a"), shared("sharing", "s"))
	is("three lines", "first")
	Do(t, e.Store, withdrawn("first"))
	is("the next of its line", "second")
	Do(t, e.Store, withdrawn("second"))
	is("of another queue", "behind")
	Do(t, e.Store, released("sharer"))
	is("the one behind it", "sharing")
	Do(t, e.Store, withdrawn("sharing"))
	is("a third line", "last")
	Do(t, e.Store, released("new"))
	is("none again", "")
	DoAt(t, e.Store, 24*time.Hour, lasting(exclusive("ahead", "f"))) // as after a restore: versions are ahead of the time
	Do(t, e.Store, exclusive("late", "f"))
	is("a line whose versions are ahead", "late")
}

// finishedAgo makes a claim that ended some time ago.
func finishedAgo(t testing.TB, s db.Store, id string, ago time.Duration) claim.Claim {
	t.Helper()
	DoAt(t, s, -ago-time.Minute, exclusive(id, "r"+id))
	return DoAt(t, s, -ago, released(id))[0]
}

func historyCutoff(t testing.TB, e Engine) {
	DoAt(t, e.Store, -24*time.Hour, exclusive("live", "live"), exclusive("waiting", "live"))
	ends := make([]claim.Time, 6)
	for _, i := range []int{3, 1, 5, 2, 4} { // hours ago
		ends[i] = finishedAgo(t, e.Store, fmt.Sprint(i), time.Duration(i)*time.Hour).Finished
	}
	for keep, want := range map[int]claim.Time{0: 0, 1: ends[1], 2: ends[2], 5: ends[5], 6: 0, 100: 0} {
		equal(t, fmt.Sprint("cutoff to keep ", keep), census(t, e.Store, keep).Cutoff, want)
	}
}
