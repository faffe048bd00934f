package dbtest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var queueCases = []Case{
	{Name: "OrderOfWaiters", Run: orderOfWaiters},
	{Name: "ManyShared", Run: manyShared},
	{Name: "ManySharedDue", Run: manySharedDue},
	{Name: "HolderWhileHandedOn", Run: holderWhileHandedOn},
	{Name: "LongQueue", Run: longQueue},
}

// orderOfWaiters makes waiters whose ids, owners and times are in another order than their places in the queue. Every
// second one gives up.
func orderOfWaiters(t testing.TB, e Engine) {
	const n = 50
	id := func(i int) string { return fmt.Sprintf("w%02d", i*37%n) }
	for i := range n {
		DoAt(t, e.Store, -time.Duration(i)*time.Minute, exclusive(id(i), "r"))
	}
	for i := 1; i < n; i += 2 {
		Do(t, e.Store, withdrawn(id(i)))
	}
	for i := 0; i < n; i += 2 {
		holder, err := e.Store.Holder(t.Context(), "r")
		must(t, err)
		if holder.ID != id(i) || holder.Status != claim.Active {
			t.Fatalf("holder %d is %s (%s), want %s", i, holder.ID, holder.Status, id(i))
		}
		Do(t, e.Store, released(id(i)))
	}
	equal(t, "waiting at last", row(t, e.Store, "r").Waiting, 0)
}

// manyShared has more waiters to grant at once than are read at once.
func manyShared(t testing.TB, e Engine) {
	const n = 60
	cmds := []claim.Command{exclusive("first", "r")}
	for i := range n {
		cmds = append(cmds, shared(fmt.Sprint("s", i), "r"))
	}
	Do(t, e.Store, append(cmds, exclusive("x", "r"), shared("late", "r"))...)
	count(t, e.Store, db.Census{Active: 1, Waiting: n + 2})
	Do(t, e.Store, released("first"))
	count(t, e.Store, db.Census{Active: n, Waiting: 2, Finished: 1})
	tokens := map[uint64]bool{}
	for i := range n {
		c := get(t, e.Store, fmt.Sprint("s", i))
		equal(t, "status of "+c.ID, c.Status, claim.Active)
		tokens[c.Token] = true
	}
	equal(t, "different tokens", len(tokens), n)
	status(t, e.Store, "x", claim.Waiting)
	status(t, e.Store, "late", claim.Waiting)
	equal(t, "row", row(t, e.Store, "r").Shared, n)
	for i := range n {
		Do(t, e.Store, released(fmt.Sprint("s", i)))
	}
	status(t, e.Store, "x", claim.Active)
	status(t, e.Store, "late", claim.Waiting)
}

// manySharedDue has more holders to expire than a transaction may wish to read. A few
// sweeps end all of them, and only them.
func manySharedDue(t testing.TB, e Engine) {
	const n = 700
	var cmds []claim.Command
	for i := range n {
		cmds = append(cmds, shared(fmt.Sprint("s", i), "r"))
	}
	DoAt(t, e.Store, -2*time.Hour, cmds...)
	Do(t, e.Store, shared("stays", "r"), exclusive("x", "r"))
	for range n/100 + 1 {
		if row(t, e.Store, "r").Shared == 1 {
			break
		}
		Do(t, e.Store, claim.Expire{Resources: []string{"r"}})
	}
	count(t, e.Store, db.Census{Active: 1, Waiting: 1, Finished: n})
	Do(t, e.Store, released("stays"))
	status(t, e.Store, "x", claim.Active)
}

// holderWhileHandedOn reads the holder of a resource that goes from one to the next, and
// is never free.
func holderWhileHandedOn(t testing.TB, e Engine) {
	next := func(i int) claim.Create {
		if i%2 == 0 {
			return shared(fmt.Sprint("c", i), "r")
		}
		return exclusive(fmt.Sprint("c", i), "r")
	}
	Do(t, e.Store, next(0))
	stop, seen := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				seen <- nil
				return
			default:
			}
			if c, err := e.Store.Holder(t.Context(), "r"); err != nil || c.Status != claim.Active {
				seen <- errors.Join(err, fmt.Errorf("holder: %+v", c))
				return
			}
		}
	}()
	defer func() {
		close(stop)
		if err := <-seen; err != nil {
			t.Error(err)
		}
	}()
	for i := range 80 {
		Do(t, e.Store, next(i+1))
		Do(t, e.Store, released(fmt.Sprint("c", i)))
	}
}

// longQueue has more waiters than any engine reads or writes at once. Benchmarks measure the cost.
func longQueue(t testing.TB, e Engine) {
	const n, batch = 3_000, 500
	id := func(i int) string { return fmt.Sprintf("%05d", i) }
	for i := 0; i < n; i += batch {
		var cmds []claim.Command
		for j := i; j < i+batch; j++ {
			cmds = append(cmds, exclusive(id(j), "r"))
		}
		Do(t, e.Store, cmds...)
	}
	count(t, e.Store, db.Census{Active: 1, Waiting: n - 1})
	for i := range 50 {
		Do(t, e.Store, released(id(i)))
		equal(t, "new claim", Do(t, e.Store, exclusive(id(n+i), "r"))[0].Status, claim.Waiting)
		status(t, e.Store, id(i+1), claim.Active)
	}
	Do(t, e.Store, withdrawn(id(1500)), withdrawn(id(n+49)), withdrawn(id(51)))
	Do(t, e.Store, released(id(50)))
	status(t, e.Store, id(52), claim.Active)
	count(t, e.Store, db.Census{Active: 1, Waiting: n - 5, Finished: 54})
	equal(t, "row", row(t, e.Store, "r").Waiting, n-5)
}

func census(t testing.TB, s db.Store, keep int) db.Census {
	t.Helper()
	n, err := s.Census(t.Context(), keep)
	must(t, err)
	return n
}

// count checks how many claims there are.
func count(t testing.TB, s db.Store, want db.Census) {
	t.Helper()
	got := census(t, s, 0)
	got.OldestWaiting = 0
	equal(t, "counts", got, want)
}
