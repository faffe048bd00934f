package dbtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var pruneCases = []Case{
	{Name: "Remember", Run: remember},
	{Name: "Prune", Run: prune},
	{Name: "PruneLeavesLive", Run: pruneLeavesLive},
	{Name: "PruneResources", Run: pruneResources},
	{Name: "PruneResourcesWalk", Run: pruneResourcesWalk},
	{Name: "Floor", Run: floor},
}

const soon = 10 * 24 * time.Hour

// pruneAll deletes every finished claim.
func pruneAll(t testing.TB, s db.Store) {
	t.Helper()
	_, err := s.Prune(t.Context(), now(t, s).Wall.Add(soon), 100_000)
	must(t, err)
}

// pruneAllResources deletes the rows of all resources without live claims.
func pruneAllResources(t testing.TB, s db.Store) {
	t.Helper()
	next, err := s.PruneResources(t.Context(), "", now(t, s).Wall.Add(soon), 100_000)
	must(t, err)
	equal(t, "name to go on at, at the end", next, "")
}

func prunes(t testing.TB, s db.Store, before claim.Time, limit, want int) {
	t.Helper()
	n, err := s.Prune(t.Context(), before, limit)
	must(t, err)
	equal(t, "deleted", n, want)
}

// remember stores readings over three hours. A reading too close to the last one is left out, and all old ones except
// the latest are forgotten. A reading may be of any time.
func remember(t testing.TB, e Engine) {
	begin := now(t, e.Store)
	var kept []claim.Instant
	for n := range 60 {
		passed := time.Duration(n) * 3 * time.Minute
		reading := claim.Instant{Lease: begin.Lease.Add(passed), Wall: begin.Wall.Add(-7 * passed)}
		got, err := e.Store.Remember(t.Context(), reading)
		must(t, err)
		equal(t, "earlier readings", got, kept)
		kept = append(kept, reading)
		for len(kept) > 1 && kept[1].Lease < reading.Lease.Add(-db.ReadingAge) {
			kept = kept[1:]
		}
		reading.Lease = reading.Lease.Add(db.ReadingInterval - time.Microsecond)
		got, err = e.Store.Remember(t.Context(), reading)
		must(t, err)
		equal(t, "readings that are stored", got, kept)
	}
}

func prune(t testing.TB, e Engine) {
	ends := map[string]claim.Time{}
	for _, id := range []string{"3", "1", "5", "2", "4"} { // hours ago
		ago := time.Duration(id[0]-'0') * time.Hour
		ends[id] = finishedAgo(t, e.Store, id, ago).Finished
	}
	left := func(want ...string) {
		t.Helper()
		equal(t, "left", ids(list(t, e.Store, db.Filter{})), want)
	}
	prunes(t, e.Store, ends["5"], 10, 0)
	left("5", "4", "3", "2", "1")
	prunes(t, e.Store, ends["1"], 1, 1)
	left("4", "3", "2", "1")
	prunes(t, e.Store, ends["1"], 2, 2)
	left("2", "1")
	prunes(t, e.Store, ends["1"], 10, 1)
	left("1")
	prunes(t, e.Store, ends["1"]+1, 10, 1)
	prunes(t, e.Store, ends["1"]+1, 10, 0)
	count(t, e.Store, db.Census{})
}

func pruneLeavesLive(t testing.TB, e Engine) {
	DoAt(t, e.Store, -48*time.Hour, lasting(exclusive("a", "r")), exclusive("b", "r"), shared("s", "q"), exclusive("gone", "p"))
	Do(t, e.Store, released("gone"))
	prunes(t, e.Store, now(t, e.Store).Wall.Add(soon), 100, 1)
	equal(t, "left", ids(list(t, e.Store, db.Filter{})), []string{"a", "b", "s"})
	Do(t, e.Store, released("a"))
	status(t, e.Store, "b", claim.Active)
}

// pruneResources has rows that are old or young, with live claims or without.
func pruneResources(t testing.TB, e Engine) {
	Do(t, e.Store, exclusive("young", "young"))
	DoAt(t, e.Store, -2*time.Hour, exclusive("old", "old"), lasting(exclusive("x", "exclusive")), lasting(shared("s", "shared")),
		lasting(exclusive("late", "late")), lasting(exclusive("one", "waiting")), exclusive("two", "waiting"))
	DoAt(t, e.Store, -2*time.Hour, released("old"))
	Do(t, e.Store, released("young"), released("late"))
	rows := map[string]claim.Row{}
	for _, name := range []string{"young", "late", "exclusive", "shared", "waiting"} {
		rows[name] = row(t, e.Store, name)
	}
	next, err := e.Store.PruneResources(t.Context(), "", now(t, e.Store).Wall.Add(-time.Hour), 100)
	must(t, err)
	equal(t, "name to go on at", next, "")
	equal(t, "row of old", row(t, e.Store, "old").Version, 0)
	for name, want := range rows {
		equal(t, "row of "+name, row(t, e.Store, name), want)
	}
	pruneAllResources(t, e.Store)
	equal(t, "row of young", row(t, e.Store, "young").Version, 0)
	equal(t, "row of late", row(t, e.Store, "late").Version, 0)
	for _, name := range []string{"exclusive", "shared", "waiting"} {
		equal(t, "row of "+name, row(t, e.Store, name), rows[name])
	}
	Do(t, e.Store, released("one"), released("x"), released("s"))
	status(t, e.Store, "two", claim.Active)
}

func pruneResourcesWalk(t testing.TB, e Engine) {
	names := []string{"A", "B", "a", "a ", "b", "c", "d", "é", "本", "🔒"}
	for i, name := range names {
		Do(t, e.Store, exclusive(fmt.Sprint(i), name))
		if i != 1 && i != 5 {
			Do(t, e.Store, released(fmt.Sprint(i)))
		}
	}
	before := now(t, e.Store).Wall.Add(soon)
	for _, step := range []struct {
		after, next string
		gone        int // how many of the names have been looked at
	}{{"", "a", 3}, {"a", "c", 6}, {"c", "本", 9}, {"本", "", 10}} {
		next, err := e.Store.PruneResources(t.Context(), step.after, before, 3)
		must(t, err)
		equal(t, "name to go on at after "+step.after, next, step.next)
		for i, name := range names {
			if gone := row(t, e.Store, name).Version == 0; gone != (i < step.gone && i != 1 && i != 5) {
				t.Errorf("after the step to %q: row of %q is gone: %t", step.next, name, gone)
			}
		}
	}
}

// floor deletes a row whose version is far ahead of the clock.
func floor(t testing.TB, e Engine) {
	s := e.Store
	last := DoAt(t, s, 48*time.Hour, exclusive("0", "r"))[0].Token
	Do(t, s, exclusive("other", "q"))
	for i := range 3 {
		last = max(last, Do(t, s, released(fmt.Sprint(i)))[0].Version)
		pruneAll(t, s)
		pruneAllResources(t, s)
		equal(t, "version of the deleted row", row(t, s, "r").Version, 0)
		if i == 1 {
			s = e.Reopen(t)
		}
		c := Do(t, s, exclusive(fmt.Sprint(i+1), "r"))[0]
		if c.Token <= last || c.Enqueued <= last {
			t.Fatalf("token %d, position %d after version %d", c.Token, c.Enqueued, last)
		}
	}
	// The rows that stayed go on as before.
	Do(t, s, exclusive("next", "q"), released("other"))
	status(t, s, "next", claim.Active)
}
