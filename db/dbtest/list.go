package dbtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var listCases = []Case{
	{Name: "ListEach", Run: listEach},
	{Name: "ListOrder", Run: listOrder},
	{Name: "ListPages", Run: listPages},
	{Name: "ListBounds", Run: listBounds},
	{Name: "ListBytes", Run: listBytes},
	{Name: "ListMixed", Run: listMixed},
	{Name: "ListPrefixes", Run: listPrefixes},
}

func ref[V any](v V) *V { return &v }

// unit is the unit of the ages of variety. It is long: what a slow machine takes for a case changes none of them by much.
const unit = time.Minute

// variety makes claims in every state:
//
//	claim      created  active since  ended   by now
//	held       80 min   80 min                active, 40 min left
//	waits      60 min                         waiting
//	gave up    60 min                 40 min  withdrawn while waiting
//	worked     50 min   50 min        30 min  released
//	followed   45 min   30 min                active, 60 hours left
//	overdue    90 min   90 min                active, due for 20 min
//	expired    70 min   70 min        now     expired
//	reader     20 min   20 min                active, shared
func variety(t testing.TB, s db.Store) {
	at := func(ago time.Duration, cmds ...claim.Command) { t.Helper(); DoAt(t, s, -ago, cmds...) }
	takes := func(id, resource string, ttl time.Duration) claim.Create {
		return claim.Create{ID: id, Resource: resource, Owner: resource[:1], TTL: ttl}
	}
	at(90*unit, takes("overdue", "overdue", 70*unit))
	at(80*unit, takes("held", "line", 2*60*unit))
	at(70*unit, takes("expired", "expired", unit))
	at(60*unit, takes("waits", "line", 60*60*unit), takes("gave up", "line", 60*60*unit))
	at(50*unit, takes("worked", "work", 60*60*unit))
	at(45*unit, takes("followed", "work", 60*60*unit+30*unit))
	at(40*unit, withdrawn("gave up"))
	at(30*unit, released("worked"))
	reader := takes("reader", "read", 60*60*unit)
	reader.Units, reader.Owner = claim.Shared, "l"
	at(20*unit, reader)
	at(0, claim.Expire{Resources: []string{"expired"}})
}

func listEach(t testing.TB, e Engine) {
	variety(t, e.Store)
	for name, c := range map[string]struct {
		f    db.Filter
		want []string
	}{
		"all":                 {db.Filter{}, []string{"overdue", "held", "expired", "gave up", "waits", "worked", "followed", "reader"}},
		"resource":            {db.Filter{Resource: ref("line")}, []string{"held", "gave up", "waits"}},
		"nothing":             {db.Filter{Resource: ref("lin")}, []string{}},
		"owner":               {db.Filter{Owner: ref("l")}, []string{"held", "gave up", "waits", "reader"}},
		"no owner":            {db.Filter{Owner: ref("")}, []string{}},
		"exclusive":           {db.Filter{Units: ref(claim.Exclusive), Owner: ref("l")}, []string{"held", "gave up", "waits"}},
		"shared":              {db.Filter{Units: ref(claim.Shared)}, []string{"reader"}},
		"waiting":             {db.Filter{Statuses: []claim.Status{claim.Waiting}}, []string{"waits"}},
		"active":              {db.Filter{Statuses: []claim.Status{claim.Active}}, []string{"overdue", "held", "followed", "reader"}},
		"released":            {db.Filter{Statuses: []claim.Status{claim.Released}}, []string{"worked"}},
		"expired":             {db.Filter{Statuses: []claim.Status{claim.Expired}}, []string{"expired"}},
		"aborted":             {db.Filter{Statuses: []claim.Status{claim.Aborted}}, []string{}},
		"withdrawn":           {db.Filter{Statuses: []claim.Status{claim.Withdrawn}}, []string{"gave up"}},
		"live":                {db.Filter{Statuses: []claim.Status{claim.Waiting, claim.Active}}, []string{"overdue", "held", "waits", "followed", "reader"}},
		"ended well":          {db.Filter{Statuses: []claim.Status{claim.Withdrawn, claim.Released}}, []string{"gave up", "worked"}},
		"some":                {db.Filter{Statuses: []claim.Status{claim.Expired, claim.Waiting}}, []string{"expired", "waits"}},
		"prefix":              {db.Filter{Prefix: "li"}, []string{"held", "gave up", "waits"}},
		"live of a prefix":    {db.Filter{Prefix: "li", Statuses: []claim.Status{claim.Waiting, claim.Active}}, []string{"held", "waits"}},
		"shared of a prefix":  {db.Filter{Prefix: "r", Statuses: []claim.Status{claim.Active}}, []string{"reader"}},
		"prefix and resource": {db.Filter{Prefix: "work", Resource: ref("line")}, []string{}},
		"newest":              {db.Filter{Newest: true}, []string{"reader", "followed", "worked", "waits", "gave up", "expired", "held", "overdue"}},
		"newest live":         {db.Filter{Newest: true, Statuses: []claim.Status{claim.Waiting, claim.Active}}, []string{"reader", "followed", "waits", "held", "overdue"}},
		"newest released":     {db.Filter{Newest: true, Statuses: []claim.Status{claim.Released}}, []string{"worked"}},
		"together":            {db.Filter{Resource: ref("line"), Owner: ref("l"), Statuses: []claim.Status{claim.Active}}, []string{"held"}},
	} {
		got := list(t, e.Store, c.f)
		equal(t, name, ids(got), c.want)
		for _, c := range got {
			stored(t, e.Store, name, c)
		}
	}
	Do(t, e.Store, claim.Create{ID: "nobody's", Resource: "n", TTL: time.Hour})
	equal(t, "no owner", ids(list(t, e.Store, db.Filter{Owner: ref("")})), []string{"nobody's"})
}

// listOrder has claims that were made in another order than their times and ids.
func listOrder(t testing.TB, e Engine) {
	for _, c := range []struct {
		ago time.Duration
		ids []string
	}{{1, []string{"d"}}, {3, []string{"c", "a", "B", "á"}}, {2, []string{"e"}}, {0, []string{"b"}}} {
		var cmds []claim.Command
		for _, id := range c.ids {
			cmds = append(cmds, exclusive(id, "r"+id))
		}
		DoAt(t, e.Store, -c.ago*time.Minute, cmds...)
	}
	Do(t, e.Store, claim.Renew{ID: "a", TTL: time.Minute}, released("B"))
	want := []string{"B", "a", "c", "á", "e", "d", "b"}
	equal(t, "order", ids(list(t, e.Store, db.Filter{})), want)
	equal(t, "order, with a bound", ids(list(t, e.Store, db.Filter{MinWaiting: ref(time.Duration(0))})), want)
	slices.Reverse(want)
	equal(t, "newest first", ids(list(t, e.Store, db.Filter{Newest: true})), want)
}

func listPages(t testing.TB, e Engine) {
	const n = 23
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("%02d", i))
	}
	// Three at a time, give or take a slow machine's delay from a look at the clock to the transaction.
	base := now(t, e.Store).Wall
	for i := 0; i < n; i += 3 {
		var cmds []claim.Command
		for j := i; j < min(i+3, n); j++ {
			cmds = append(cmds, exclusive(want[j], fmt.Sprint("r", j%2)))
		}
		off := base.Add(time.Duration(i-100) * time.Minute).Sub(now(t, e.Store).Wall)
		DoAt(t, e.Store, off, cmds...)
	}
	for _, p := range []struct{ limit, offset int }{{0, 0}, {5, 0}, {5, 5}, {5, 20}, {5, 23}, {5, 100}, {0, 7}, {100, 22}, {1, 0}} {
		end := n
		if p.limit != 0 {
			end = p.offset + p.limit
		}
		equal(t, fmt.Sprintf("limit %d, offset %d", p.limit, p.offset),
			ids(list(t, e.Store, db.Filter{Limit: p.limit, Offset: p.offset})), want[min(p.offset, n):min(end, n)])
	}
	for _, step := range []int{1, 2, 3, 4, 50} {
		equal(t, fmt.Sprint("pages of ", step), walk(t, e.Store, db.Filter{Limit: step}), want)
	}
	third := get(t, e.Store, want[3])
	after := db.Filter{After: &db.Cursor{Created: third.Created, ID: third.ID}, Offset: 2, Limit: 2}
	equal(t, "a cursor with an offset", ids(list(t, e.Store, after)), want[6:8])
	after.Resource, after.Offset = ref("r1"), 0
	equal(t, "a cursor on one resource", ids(list(t, e.Store, after)), []string{want[5], want[7]})
}

// listBytes has claims of 1,000 bytes: an answer ends with the first claim that exceeds its size.
func listBytes(t testing.TB, e Engine) {
	var want []string
	for i := range 10 {
		c := exclusive(fmt.Sprint(i), fmt.Sprint("r", i%3))
		c.Owner, c.UserData = "o", []byte(`"`+strings.Repeat("u", 990)+`"`)
		c.Value = strings.Repeat("v", 1000-len(c.ID)-len(c.Resource)-len(c.Owner)-len(c.UserData))
		Do(t, e.Store, c)
		want = append(want, c.ID)
	}
	for bytes, n := range map[int]int{0: 10, 1: 2, 999: 2, 1000: 2, 1001: 3, 5000: 6, 8999: 10, 9000: 10, 100_000: 10} {
		got := list(t, e.Store, db.Filter{Bytes: bytes})
		equal(t, fmt.Sprint("a list of bytes: ", bytes), ids(got), want[:n])
		for _, c := range got {
			stored(t, e.Store, "the list", c)
		}
		equal(t, fmt.Sprint("with a limit of 4, bytes: ", bytes), ids(list(t, e.Store, db.Filter{Bytes: bytes, Limit: 4})), want[:min(n, 4)])
		held, err := e.Store.Live(t.Context(), db.LiveOf{Held: new(claim.Untyped)}, db.Page{Bytes: bytes})
		must(t, err)
		equal(t, fmt.Sprint("held in bytes: ", bytes), len(held), min(n, 3))
	}
	// The store still works after answers that ended early.
	equal(t, "all", ids(list(t, e.Store, db.Filter{})), want)
}

// walk lists page by page.
func walk(t testing.TB, s db.Store, f db.Filter) (all []string) {
	t.Helper()
	for range 100 {
		page := list(t, s, f)
		all = append(all, ids(page)...)
		if len(page) < f.Limit {
			break
		}
		last := page[len(page)-1]
		f.After = &db.Cursor{Created: last.Created, ID: last.ID}
	}
	return all
}

func listBounds(t testing.TB, e Engine) {
	variety(t, e.Store)
	created := get(t, e.Store, "waits").Created
	of := func(n time.Duration) *time.Duration { return ref(n * unit) }
	for name, c := range map[string]struct {
		f    db.Filter
		want []string
	}{
		"active at all":       {db.Filter{MinActive: of(0)}, []string{"overdue", "held", "expired", "worked", "followed", "reader"}},
		"active 75 min":       {db.Filter{MinActive: of(75)}, []string{"overdue", "held"}},
		"active up to 25 min": {db.Filter{MaxActive: of(25)}, []string{"worked", "reader"}},
		"active 25 to 75 min": {db.Filter{MinActive: of(25), MaxActive: of(75)}, []string{"expired", "followed"}},
		"waited at all":       {db.Filter{MinWaiting: of(0)}, []string{"overdue", "held", "expired", "gave up", "waits", "worked", "followed", "reader"}},
		"waited 10 min":       {db.Filter{MinWaiting: of(10)}, []string{"gave up", "waits", "followed"}},
		"waited up to 10 min": {db.Filter{MaxWaiting: of(10)}, []string{"overdue", "held", "expired", "worked", "reader"}},
		"waited 18 to 50 min": {db.Filter{MinWaiting: of(18), MaxWaiting: of(50)}, []string{"gave up"}},
		"time left":           {db.Filter{MinTTL: of(0)}, []string{"overdue", "held", "followed", "reader"}},
		"a minute left":       {db.Filter{MinTTL: of(1)}, []string{"held", "followed", "reader"}},
		"no time left":        {db.Filter{MaxTTL: of(0)}, []string{"overdue"}},
		"up to an hour":       {db.Filter{MaxTTL: of(60)}, []string{"overdue", "held"}},
		"one to 60 min left":  {db.Filter{MinTTL: of(1), MaxTTL: of(60)}, []string{"held"}},
		"created since":       {db.Filter{MinCreated: &created}, []string{"gave up", "waits", "worked", "followed", "reader"}},
		"created before":      {db.Filter{MaxCreated: &created}, []string{"overdue", "held", "expired", "gave up", "waits"}},
		"created then":        {db.Filter{MinCreated: &created, MaxCreated: &created}, []string{"gave up", "waits"}},
		"active, one status":  {db.Filter{MinActive: of(25), Statuses: []claim.Status{claim.Active}, MaxTTL: of(60)}, []string{"overdue", "held"}},
		"nothing":             {db.Filter{MinActive: of(75), MaxActive: of(25)}, []string{}},
	} {
		equal(t, name, ids(list(t, e.Store, c.f)), c.want)
	}
	Do(t, e.Store, attach("a session", "s1"), bound("endless", "free", "a session"))
	equal(t, "a claim of a session has no time left", ids(list(t, e.Store, db.Filter{MinTTL: of(100)})), []string{"followed", "reader"})
}

// passes evaluates a filter as package db defines it, apart from its order and pages.
func passes(f db.Filter, c claim.Claim, at claim.Instant) bool {
	active, was := c.ActiveDuration(at)
	return (f.Resource == nil || *f.Resource == c.Resource) &&
		(f.Owner == nil || *f.Owner == c.Owner) &&
		(f.Units == nil || *f.Units == c.Units) &&
		(len(f.Statuses) == 0 || slices.Contains(f.Statuses, c.Status)) && strings.HasPrefix(c.Resource, f.Prefix) &&
		within(active, was, f.MinActive, f.MaxActive) &&
		within(c.WaitingDuration(at), true, f.MinWaiting, f.MaxWaiting) &&
		within(c.Remaining(at), c.Status == claim.Active && c.Session == "", f.MinTTL, f.MaxTTL) &&
		within(c.Created, true, f.MinCreated, f.MaxCreated) &&
		(f.After == nil || order(f)(c, claim.Claim{Created: f.After.Created, ID: f.After.ID}) > 0)
}

func within[V cmp.Ordered](v V, has bool, lower, upper *V) bool {
	return (lower == nil || has && v >= *lower) && (upper == nil || has && v <= *upper)
}

// order returns the order of a list.
func order(f db.Filter) func(a, b claim.Claim) int {
	return func(a, b claim.Claim) int {
		if f.Newest {
			a, b = b, a
		}
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
	}
}

func page(f db.Filter, all []claim.Claim, at claim.Instant) []string {
	var pass []claim.Claim
	for _, c := range all {
		if passes(f, c, at) {
			pass = append(pass, c)
		}
	}
	slices.SortFunc(pass, order(f))
	pass = pass[min(f.Offset, len(pass)):]
	if f.Limit > 0 {
		pass = pass[:min(f.Limit, len(pass))]
	}
	return ids(pass)
}

func given[V any](p *V) (v V) {
	if p != nil {
		v = *p
	}
	return v
}

func maybe[V any](rnd *rand.Rand, one int, values ...V) *V {
	if rnd.IntN(one) != 0 {
		return nil
	}
	return &values[rnd.IntN(len(values))]
}

func randomFilter(rnd *rand.Rand, all []claim.Claim) db.Filter {
	some := all[rnd.IntN(len(all))]
	bound := func() *time.Duration {
		return maybe(rnd, 8, 0, unit, 19*unit, 21*unit, 33*unit, 62*unit, 60*60*unit)
	}
	f := db.Filter{
		Resource: maybe(rnd, 5, some.Resource), Prefix: given(maybe(rnd, 4, "l", "li", "line", "o", some.Resource)), Newest: rnd.IntN(2) == 0, Owner: maybe(rnd, 5, "l", "w", "", some.Owner), Units: maybe(rnd, 5, claim.Exclusive, claim.Shared),
		MinActive: bound(), MaxActive: bound(), MinWaiting: bound(), MaxWaiting: bound(), MinTTL: bound(), MaxTTL: bound(),
		MinCreated: maybe(rnd, 8, some.Created, some.Created+1), MaxCreated: maybe(rnd, 8, some.Created, some.Created-1),
		After: maybe(rnd, 5, db.Cursor{Created: some.Created, ID: some.ID}, db.Cursor{Created: some.Created}),
	}
	if rnd.IntN(4) == 0 {
		for range 1 + rnd.IntN(3) {
			f.Statuses = append(f.Statuses, claim.Status(1+rnd.IntN(7)))
		}
	}
	if rnd.IntN(2) == 0 {
		f.Limit, f.Offset = 1+rnd.IntN(6), rnd.IntN(4)
	}
	return f
}

// listMixed compares random filters with passes.
func listMixed(t testing.TB, e Engine) {
	variety(t, e.Store)
	all := list(t, e.Store, db.Filter{})
	if len(all) != 8 {
		t.Fatalf("%d claims", len(all))
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		f := randomFilter(rnd, all)
		got, at, err := e.Store.List(t.Context(), f)
		must(t, err)
		if want := page(f, all, at); !slices.Equal(ids(got), want) {
			filter, _ := json.Marshal(f)
			t.Fatalf("got %q, want %q of %s", ids(got), want, filter)
		}
	}
}

// listPrefixes lists names that begin as bytes, whatever characters they are of.
func listPrefixes(t testing.TB, e Engine) {
	names := []string{"a", "a/", "a/1", "a0", "A", "b", "é", "éa", "\ud7ff", "\ud7ffz", "\ue000", "\U0010ffff", "\U0010ffff\U0010ffff", "%", "_", "\\", "'"}
	var cmds []claim.Command
	for i, name := range names {
		cmds = append(cmds, exclusive(fmt.Sprintf("%02d", i), name))
	}
	Do(t, e.Store, cmds...)
	live := []claim.Status{claim.Active}
	for _, prefix := range append(names, "", "a/1/", "\U0010fffe", "c") {
		want := []string{}
		for i, name := range names {
			if strings.HasPrefix(name, prefix) {
				want = append(want, fmt.Sprintf("%02d", i))
			}
		}
		equal(t, fmt.Sprintf("prefix %q", prefix), ids(list(t, e.Store, db.Filter{Prefix: prefix})), want)
		equal(t, fmt.Sprintf("live of prefix %q", prefix), ids(list(t, e.Store, db.Filter{Prefix: prefix, Statuses: live})), want)
	}
}
