package dbtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var snapshotCases = []Case{
	{Name: "Queue", Run: queue},
	{Name: "QueueOfUnknownName", Run: queueOfUnknownName},
	{Name: "QueueShared", Run: queueShared},
	{Name: "QueueOrder", Run: queueOrder},
	{Name: "QueueLimit", Run: queueLimit},
	{Name: "QueueNamesAreBytes", Run: queueNamesAreBytes},
	{Name: "QueueWhileHandedOn", Run: queueWhileHandedOn},
	{Name: "Place", Run: place},
	{Name: "CancelledReads", Run: cancelledReads},
}

// queueLimitOf is the limit of most queues here; it is larger than they are.
const queueLimitOf = 1000

func readQueue(t testing.TB, s db.Store, resource string, limit int) db.Snapshot {
	t.Helper()
	snapshot, _, err := s.Queue(t.Context(), resource, limit)
	must(t, err)
	must(t, coherent(snapshot, limit))
	return snapshot
}

// queueIs reads a queue, and compares its claims.
func queueIs(t testing.TB, s db.Store, resource string, holders, waiters []string) {
	t.Helper()
	snapshot := readQueue(t, s, resource, queueLimitOf)
	equal(t, fmt.Sprintf("holders of %q", resource), ids(snapshot.Holders), holders)
	equal(t, fmt.Sprintf("waiters of %q", resource), ids(snapshot.Waiters), waiters)
}

// coherent reports inconsistencies within a snapshot.
func coherent(s db.Snapshot, limit int) error {
	holders := min(s.Shared, limit)
	if s.Holder != "" {
		holders = 1
	}
	rising := func(a, b claim.Claim) int {
		if a.Enqueued < b.Enqueued {
			return -1
		}
		return 1
	}
	switch {
	case s.Holder != "" && s.Shared > 0,
		s.Holder != "" && !slices.Equal(ids(s.Holders), []string{s.Holder}),
		s.Waiting > 0 && s.Holder == "" && s.Shared == 0,
		len(s.Holders) != holders, len(s.Waiters) != min(s.Waiting, limit),
		!slices.IsSortedFunc(s.Holders, rising), !slices.IsSortedFunc(s.Waiters, rising):
		return fmt.Errorf("the row %+v has holders %q and waiters %q", s.Row, ids(s.Holders), ids(s.Waiters))
	}
	for _, c := range s.Holders {
		if c.Status != claim.Active || c.Resource != s.Resource || c.Version > s.Version || (c.Units == claim.Shared) != (s.Shared > 0) {
			return fmt.Errorf("a holder of %+v: %+v", s.Row, c)
		}
	}
	for _, c := range s.Waiters {
		if c.Status != claim.Waiting || c.Resource != s.Resource || c.Version > s.Version {
			return fmt.Errorf("a waiter of %+v: %+v", s.Row, c)
		}
	}
	return nil
}

// queue has claims that carry data, which is left out.
func queue(t testing.TB, e Engine) {
	large := func(id string) claim.Create {
		cmd := exclusive(id, "r")
		cmd.UserData, cmd.Value, cmd.Type = []byte(`{"a": 1}`), strings.Repeat("é", db.MaxBeginning)+id, claim.Presence
		return cmd
	}
	want := DoAt(t, e.Store, -time.Minute, large("b"), large("a"))
	for i := range want {
		want[i].UserData, want[i].Value = nil, strings.Repeat("é", db.MaxBeginning/2)
	}
	before := now(t, e.Store)
	got, at, err := e.Store.Queue(t.Context(), "r", 10)
	must(t, err)
	must(t, coherent(got, 10))
	if after := now(t, e.Store); at.Wall < before.Wall || at.Wall > after.Wall || at.Lease < before.Lease || at.Lease > after.Lease {
		t.Errorf("read at %+v, between %+v and %+v", at, before, after)
	}
	equal(t, "row", got.Row, row(t, e.Store, "r"))
	equal(t, "waiting", got.Waiting, 1)
	same(t, "holder", got.Holders[0], want[0])
	same(t, "waiter", got.Waiters[0], want[1])

	Do(t, e.Store, claim.Renew{ID: "b", TTL: century})
	equal(t, "TTL", readQueue(t, e.Store, "r", 10).Holders[0].TTL, century)
	Do(t, e.Store, released("b"))
	queueIs(t, e.Store, "r", []string{"a"}, []string{})
	Do(t, e.Store, released("a"))
	queueIs(t, e.Store, "r", []string{}, []string{})
	got = readQueue(t, e.Store, "r", 10)
	equal(t, "row at last", got.Row, row(t, e.Store, "r"))
	if got.Version == 0 {
		t.Error("the version was lost")
	}
	// A holder that is due holds the resource until it is expired.
	dueAgo(t, e.Store, time.Minute, exclusive("due", "q"), exclusive("next", "q"))
	queueIs(t, e.Store, "q", []string{"due"}, []string{"next"})
}

func queueOfUnknownName(t testing.TB, e Engine) {
	Do(t, e.Store, exclusive("a", "r"), exclusive("b", "r"))
	for _, name := range []string{"none", "", "R"} {
		got, at, err := e.Store.Queue(t.Context(), name, 10)
		must(t, err)
		equal(t, fmt.Sprintf("queue of %q", name), got, db.Snapshot{Row: claim.Row{Resource: name}})
		if at.Wall == 0 || at.Lease == 0 {
			t.Errorf("read at %+v", at)
		}
	}
	// A row that was deleted is like one that never was.
	Do(t, e.Store, released("a"), released("b"))
	pruneAllResources(t, e.Store)
	equal(t, "row that was deleted", readQueue(t, e.Store, "r", 10).Row, claim.Row{Resource: "r"})
}

// queueShared has shared holders whose ids, deadlines and last changes are not in order of arrival.
func queueShared(t testing.TB, e Engine) {
	var want []string
	for i, id := range []string{"z", "a", "m", "b"} {
		cmd := shared(id, "r")
		cmd.TTL = time.Duration(10-i) * time.Hour
		DoAt(t, e.Store, -time.Duration(i)*time.Minute, cmd)
		want = append(want, id)
	}
	Do(t, e.Store, exclusive("x", "r"), shared("y", "r"), shared("other", "q"), claim.Renew{ID: "z", TTL: 20 * time.Hour})
	queueIs(t, e.Store, "r", want, []string{"x", "y"})
	equal(t, "row", readQueue(t, e.Store, "r", 10).Row, row(t, e.Store, "r"))
	Do(t, e.Store, released("a"))
	queueIs(t, e.Store, "r", []string{"z", "m", "b"}, []string{"x", "y"})
	Do(t, e.Store, withdrawn("x"))
	queueIs(t, e.Store, "r", []string{"z", "m", "b", "y"}, []string{})
}

// queueOrder has waiters as in orderOfWaiters.
func queueOrder(t testing.TB, e Engine) {
	const n = 50
	var want []string
	for i := range n {
		id := fmt.Sprintf("w%02d", i*37%n)
		DoAt(t, e.Store, -time.Duration(i)*time.Minute, exclusive(id, "r"))
		want = append(want, id)
	}
	for len(want) > 1 {
		queueIs(t, e.Store, "r", want[:1], want[1:])
		gone := len(want) / 2
		Do(t, e.Store, withdrawn(want[gone]))
		want = slices.Delete(want, gone, gone+1)
	}
}

// queueLimit has queues with the last ids and deadlines first.
func queueLimit(t testing.TB, e Engine) {
	var share, wait []claim.Command
	for i := range 12 {
		id := fmt.Sprintf("%02d", 99-i)
		cmd := shared("s"+id, "shared")
		cmd.TTL = time.Duration(99-i) * time.Hour
		share = append(share, cmd)
		wait = append(wait, exclusive("w"+id, "shared"), exclusive("x"+id, "exclusive"))
	}
	Do(t, e.Store, append(share, wait...)...)
	for _, limit := range []int{1, 5, 11, 12, 13} {
		got := readQueue(t, e.Store, "shared", limit)
		equal(t, "shared holders", len(got.Holders), min(limit, 12))
		equal(t, "waiters", len(got.Waiters), min(limit, 12))
		equal(t, "row", got.Row, row(t, e.Store, "shared"))
		equal(t, "first holder", got.Holders[0].ID, "s99")
		equal(t, "first waiter", got.Waiters[0].ID, "w99")
		got = readQueue(t, e.Store, "exclusive", limit)
		equal(t, "holder", ids(got.Holders), []string{"x99"})
		equal(t, "waiters", len(got.Waiters), min(limit, 11))
		equal(t, "waiting", got.Waiting, 11)
	}
}

func queueNamesAreBytes(t testing.TB, e Engine) {
	var cmds []claim.Command
	for i, name := range alike {
		first, second := exclusive("1 "+name, name), exclusive("2 "+name, name)
		if i%2 == 0 {
			first.Units = claim.Shared
		}
		cmds = append(cmds, first, second)
	}
	Do(t, e.Store, cmds...)
	for _, name := range alike {
		queueIs(t, e.Store, name, []string{"1 " + name}, []string{"2 " + name})
		aheadIs(t, e.Store, "2 "+name, 10, 0)
	}
}

// queueWhileHandedOn reads the queue of a resource that goes from one to the next, and
// always has waiters.
func queueWhileHandedOn(t testing.TB, e Engine) {
	next := func(i int) claim.Create {
		if i%4 < 2 {
			return shared(fmt.Sprint("c", i), "r")
		}
		return exclusive(fmt.Sprint("c", i), "r")
	}
	const line = 5
	for i := range line {
		Do(t, e.Store, next(i))
	}
	stop, seen := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				seen <- nil
				return
			default:
			}
			snapshot, _, err := e.Store.Queue(t.Context(), "r", 2)
			if err = errors.Join(err, coherent(snapshot, 2)); err == nil && len(snapshot.Holders) == 0 {
				err = errors.New("the resource has no holder")
			}
			if err != nil {
				seen <- err
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
		Do(t, e.Store, next(i+line))
		Do(t, e.Store, released(fmt.Sprint("c", i)))
	}
}

func aheadIs(t testing.TB, s db.Store, id string, limit, want int) {
	t.Helper()
	c, got, at, err := s.Get(t.Context(), id, limit)
	must(t, err)
	equal(t, fmt.Sprintf("ahead of %q, up to %d", id, limit), got, want)
	same(t, "the claim with its place", c, get(t, s, id))
	if later := now(t, s); at.Wall == 0 || at.Lease > later.Lease {
		t.Errorf("the time of a place is %v, and later it is %v", at, later)
	}
}

// place counts in a line that some leave, beside shared holders and other lines.
func place(t testing.TB, e Engine) {
	const n = 15
	Do(t, e.Store, shared("s1", "r"), shared("s2", "r"), shared("left", "r"), released("left"))
	for _, other := range []string{"q", "R", "r "} {
		Do(t, e.Store, exclusive("holds "+other, other), exclusive("waits "+other, other))
	}
	var line []claim.Claim
	for i := range n {
		line = append(line, Do(t, e.Store, exclusive(fmt.Sprintf("w%02d", i*7%n), "r"))[0])
	}
	check := func() {
		t.Helper()
		for i, c := range line {
			for _, limit := range []int{1, 5, n, 1000} {
				aheadIs(t, e.Store, c.ID, limit, min(i, limit))
			}
		}
	}
	check()
	inNoLine := []string{"s1", "s2", "left"}
	for _, i := range []int{12, 7, 6, 3, 0} {
		inNoLine = append(inNoLine, line[i].ID)
		Do(t, e.Store, withdrawn(line[i].ID))
		line = slices.Delete(line, i, i+1)
		check()
	}
	Do(t, e.Store, released("s1"))
	for _, id := range inNoLine {
		aheadIs(t, e.Store, id, 10, 0)
	}
	Do(t, e.Store, released("s2"))
	aheadIs(t, e.Store, line[0].ID, 10, 0)
	line = line[1:]
	check()
	for _, other := range []string{"q", "R", "r "} {
		aheadIs(t, e.Store, "holds "+other, 10, 0)
		aheadIs(t, e.Store, "waits "+other, 10, 0)
	}
	if _, _, _, err := e.Store.Get(t.Context(), "none", 10); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("the place of no claim: %v", err)
	}
}

// cancelledReads has a caller that is gone.
func cancelledReads(t testing.TB, e Engine) {
	Do(t, e.Store, exclusive("a", "r"), exclusive("b", "r"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, read := range map[string]func() error{
		"Get":     func() error { _, _, _, err := e.Store.Get(ctx, "a", 0); return err },
		"Holder":  func() error { _, err := e.Store.Holder(ctx, "r"); return err },
		"Held":    func() error { _, err := e.Store.Live(ctx, db.LiveOf{Held: new(claim.Lock)}, db.Page{}); return err },
		"List":    func() error { _, _, err := e.Store.List(ctx, db.Filter{}); return err },
		"Queue":   func() error { _, _, err := e.Store.Queue(ctx, "r", 10); return err },
		"Place":   func() error { _, _, _, err := e.Store.Get(ctx, "b", 10); return err },
		"Due":     func() error { _, err := e.Store.Due(ctx, db.DueQuery{Resources: 10}); return err },
		"WaitsOf": func() error { _, err := e.Store.WaitsOf(ctx, []claim.OwnerKey{{Owner: "o"}}, 10); return err },
		"Census":  func() error { _, err := e.Store.Census(ctx, 1); return err },
	} {
		if err := read(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	queueIs(t, e.Store, "r", []string{"a"}, []string{"b"})
}
