package dbtest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var resourceCases = []Case{
	{Name: "Resources", Run: resources},
	{Name: "ResourcesMixed", Run: resourcesMixed},
	{Name: "ResourcesBehind", Run: resourcesBehind},
	{Name: "ContendedTooMany", Run: contendedTooMany},
}

// names returns the names of resources.
func names(list []db.Resource) []string {
	found := []string{}
	for _, r := range list {
		found = append(found, r.Resource)
	}
	return found
}

// resources looks at one resource of each kind.
func resources(t testing.TB, e Engine) {
	DoAt(t, e.Store, -3*time.Second, exclusive("held", "b/held"), shared("reader 1", "b/read"), exclusive("ended", "b/free"))
	DoAt(t, e.Store, -2*time.Second, shared("reader 2", "b/read"), exclusive("first", "b/held"), exclusive("writer", "b/read"))
	DoAt(t, e.Store, -1*time.Second, exclusive("second", "b/held"), exclusive("other", "c"), exclusive("before", "a"))
	Do(t, e.Store, released("ended"))
	whole := claim.Create{ID: "data", Resource: "b/data", Owner: "o", TTL: time.Hour, UserData: []byte("{}"), Value: "v"}
	Do(t, e.Store, whole)

	live, next, now, err := e.Store.Resources(t.Context(), "b/", "", 100)
	must(t, err)
	equal(t, "names", names(live), []string{"b/data", "b/held", "b/read"})
	equal(t, "next", next, "")
	contended, at, err := e.Store.Contended(t.Context(), "b/", nil, 100)
	must(t, err)
	equal(t, "contended", names(contended), []string{"b/held", "b/read"})
	equal(t, "the two ways", contended, live[1:])
	if now.Wall == 0 || at.Wall == 0 {
		t.Error("no time")
	}
	for i, want := range []struct {
		holder, first, waiter string
		shared, waiting       int
	}{{"data", "data", "", 0, 0}, {"held", "held", "first", 0, 2}, {"", "reader 1", "writer", 2, 1}} {
		r := live[i]
		queue, _, err := e.Store.Queue(t.Context(), r.Resource, 10)
		must(t, err)
		equal(t, r.Resource, r.Row, queue.Row)
		equal(t, r.Resource, r.Row, claim.Row{Resource: r.Resource, Version: queue.Version, Holder: want.holder, Shared: want.shared, Taken: uint64(want.shared), Waiting: want.waiting})
		first := get(t, e.Store, want.first)
		first.UserData, first.Value = nil, ""
		equal(t, r.Resource, r.First, first)
		since := claim.Time(0)
		if want.waiter != "" {
			since = get(t, e.Store, want.waiter).Created
		}
		equal(t, "since when the first of "+r.Resource+" waits", r.WaitsSince, since)
	}
}

// resourcesMixed pages through resources in both orders, and compares with the queues.
func resourcesMixed(t testing.TB, e Engine) {
	rnd := rand.New(rand.NewPCG(5, 6))
	all := []string{"a", "a/", "a/b", "a/b/c", "ab", "B", "á", "áa", "é", "x", "x/1", "x/2", "x/3", "\U0010ffff", "a%", "a_", "a ", `a\`, "A"}
	type place struct {
		name    string
		waiting int
	}
	var want []place
	for i, name := range all {
		if i%4 == 3 { // free
			Do(t, e.Store, exclusive(name, name))
			Do(t, e.Store, released(name))
			continue
		}
		waiting := rnd.IntN(4)
		for n := range 1 + waiting {
			Do(t, e.Store, exclusive(fmt.Sprint(name, n), name))
		}
		want = append(want, place{name, waiting})
	}
	for _, prefix := range []string{"", "a", "a/", "á", "x/", "x/2", "\U0010ffff", "y", "a%", "a_", "a ", `a\`, "A", "%", "_"} {
		under := slices.DeleteFunc(slices.Clone(want), func(p place) bool { return !strings.HasPrefix(p.name, prefix) })
		slices.SortFunc(under, func(a, b place) int { return cmp.Compare(a.name, b.name) })
		byName, contended := []string{}, []string{}
		for _, p := range under {
			byName = append(byName, p.name)
		}
		slices.SortStableFunc(under, func(a, b place) int { return cmp.Compare(b.waiting, a.waiting) })
		for _, p := range under {
			if p.waiting > 0 {
				contended = append(contended, p.name)
			}
		}
		for limit := 1; limit <= 20; limit += rnd.IntN(3) + 1 {
			what := fmt.Sprintf("prefix %q, %d at a time", prefix, limit)
			found, after := []string{}, ""
			for range 2 * len(all) {
				page, next, _, err := e.Store.Resources(t.Context(), prefix, after, limit)
				must(t, err)
				if len(page) > limit {
					t.Fatalf("%s: a page of %d", what, len(page))
				}
				found = append(found, names(page)...)
				if after = next; next == "" {
					break
				}
			}
			equal(t, what, found, byName)
			found = []string{}
			for place := (*db.Contention)(nil); ; {
				page, _, err := e.Store.Contended(t.Context(), prefix, place, limit)
				must(t, err)
				if len(page) > limit || len(found) > len(all) {
					t.Fatalf("%s: a page of %d, and %d before", what, len(page), len(found))
				}
				found = append(found, names(page)...)
				if len(page) == 0 {
					break
				}
				last := page[len(page)-1]
				place = &db.Contention{Waiting: last.Waiting, Resource: last.Resource}
			}
			equal(t, what+", most contended first", found, contended)
		}
	}
}

// resourcesBehind goes on behind folders, at names that no resource has.
func resourcesBehind(t testing.TB, e Engine) {
	long := func(prefix, fill string) string {
		return prefix + strings.Repeat(fill, (db.MaxName-len(prefix))/len(fill))
	}
	all := []string{"a", "a/", "a/1", long("a/", "\U0010ffff"), db.LastName("a/"), "a0", "á/x", "b/2/3", long("b/", "z"), "b\U0010ffff", "c", "\U0010ffff/1", db.LastName("")}
	var cmds []claim.Command
	for i, name := range all {
		cmds = append(cmds, exclusive(fmt.Sprint("claim ", i), name))
	}
	Do(t, e.Store, cmds...)
	for _, after := range []string{"a/", "a/1", "a", "b/", "b/2/", "á/", "b", "zz", "\U0010ffff/", ""} {
		for _, prefix := range []string{"", "a", "b", "b/"} {
			last, want := db.LastName(after), []string{}
			for _, name := range all {
				if strings.HasPrefix(name, prefix) && name > last {
					want = append(want, name)
				}
			}
			slices.Sort(want)
			live, next, _, err := e.Store.Resources(t.Context(), prefix, last, len(all)+1)
			must(t, err)
			equal(t, fmt.Sprintf("prefix %q behind %q", prefix, after), names(live), want)
			equal(t, "next", next, "")
		}
	}
}

// contendedTooMany has claims wait for more resources than are compared.
func contendedTooMany(t testing.TB, e Engine) {
	var cmds []claim.Command
	for i := range db.MaxContended + 1 {
		name := fmt.Sprintf("r%05d", i)
		if cmds = append(cmds, exclusive("h"+name, name), exclusive("w"+name, name)); len(cmds) == 1000 || i == db.MaxContended {
			Do(t, e.Store, cmds...)
			cmds = nil
		}
	}
	if _, _, err := e.Store.Contended(t.Context(), "", nil, 10); !errors.Is(err, db.ErrListTooLong) {
		t.Errorf("%d resources with waiting claims: %v", db.MaxContended+1, err)
	}
	page, _, err := e.Store.Contended(t.Context(), "r01", nil, 10)
	must(t, err)
	equal(t, "a prefix", len(page), 10)
	Do(t, e.Store, withdrawn("wr00000"))
	_, _, err = e.Store.Contended(t.Context(), "", nil, 10)
	must(t, err)
}

// Contend has claims wait for more resources than are compared beside other lists, whose names begin with "many", and for
// one other, "few".
func Contend(t testing.TB, s db.Store) {
	t.Helper()
	var cmds []claim.Command
	for i := range db.ManyContended + 2 {
		name := fmt.Sprint("many ", i)
		if i == 0 {
			name = "few"
		}
		cmds = append(cmds, exclusive(fmt.Sprint("h", i), name), exclusive(fmt.Sprint("w", i), name))
	}
	for chunk := range slices.Chunk(cmds, 500) {
		Do(t, s, chunk...)
	}
}
