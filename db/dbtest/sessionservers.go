package dbtest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

var sessionServerCases = []Case{
	{Name: "OtherServerGone", Run: otherServerGone, Servers: true},
	{Name: "SessionEndsAgainstCreates", Run: sessionEndsAgainstCreates, Servers: true},
	{Name: "SameNewSession", Run: sameNewSession, Servers: true},
}

// otherServerGone has two servers with sessions. The first stops, and comes back.
func otherServerGone(t testing.TB, e Engine) {
	first, second := e.Store, e.Second(t)
	must(t, first.Vouch(t.Context(), "s1"))
	must(t, second.Vouch(t.Context(), "s2"))
	Do(t, first, attach("a", "s1"), bound("held", "r", "a"))
	Do(t, second, attach("b", "s2"))
	both := db.VouchSilence + db.ClusterSkew + slack
	for end := time.Now().Add(both); time.Now().Before(end); time.Sleep(db.BeatInterval / 2) {
		must(t, first.Beat(t.Context(), 0))
		must(t, second.Beat(t.Context(), 0))
		detachSilent(t, first, 0)
		detachSilent(t, second, 0)
	}
	must(t, first.Resume(t.Context()))
	last := now(t, first)
	serve(t, second, both)
	if err := second.Beat(t.Context(), 0); err != nil {
		t.Errorf("the beat of a server that was there: %v", err)
	}
	detachSilent(t, second, 1)
	gone := session(t, second, "a")
	if off := gone.Deadline.Sub(last.Lease.Add(gone.TTL)).Abs(); gone.Server != "" || off > slack {
		t.Errorf("the last beat was at %d: %+v", last.Lease, gone)
	}
	before := now(t, second)
	if err := first.Beat(t.Context(), 0); !errors.Is(err, db.ErrVouchLost) {
		t.Errorf("the beat of a server that was declared gone: %v", err)
	}
	must(t, first.Beat(t.Context(), 0))
	if after := now(t, second); after.Lease < before.Lease {
		t.Errorf("lease time moved from %d to %d", before.Lease, after.Lease)
	}
	equal(t, "the session afterwards", session(t, first, "a"), gone)
	if err := refuse(t, first, bound("late", "q", "a")); !errors.Is(err, claim.ErrNotAttached) {
		t.Errorf("a claim for a session that was detached: %v", err)
	}
	must(t, first.Vouch(t.Context(), "s3"))
	Do(t, first, attach("a", "s3"))
	must(t, first.Beat(t.Context(), 0))
	detachSilent(t, second, 0)
	equal(t, "attached again", session(t, second, "a").Server, "s3")
	equal(t, "the other session", session(t, first, "b").Server, "s2")
	status(t, first, "held", claim.Active)
}

// sessionEndsAgainstCreates ends a session at one server while it gets claims at another: none is
// left behind.
func sessionEndsAgainstCreates(t testing.TB, e Engine) {
	first, second := e.Store, e.Second(t)
	for round := range 10 {
		id := fmt.Sprint("s", round)
		Do(t, first, attach(id, "s1"))
		var group sync.WaitGroup
		var begun sync.Once
		made, some, stop := 0, make(chan struct{}), atomic.Bool{}
		group.Go(func() {
			for ; ; made++ {
				if made == round {
					begun.Do(func() { close(some) })
				}
				answers, _, err := transact(t.Context(), first, 0, bound(fmt.Sprint(id, "-", made), fmt.Sprint("r", made), id))
				if err == nil {
					err = answers[0].err
				}
				switch {
				case (errors.Is(err, claim.ErrSessionEnded) || errors.Is(err, claim.ErrNotAttached)) && made >= round, stop.Load():
					return
				case errors.Is(err, db.ErrConflict):
					made--
				case err != nil:
					t.Errorf("claim %d: %v", made, err)
					begun.Do(func() { close(some) })
					return
				}
			}
		})
		<-some
		_, _, err := transact(t.Context(), second, 0, ending(id))
		if errors.Is(err, db.ErrConflict) { // a stream of short transactions came first: a short one ends it
			Do(t, second, claim.Detach{ID: id, Server: "s1"})
			_, _, err = transact(t.Context(), second, 0, ending(id))
		}
		if err != nil {
			stop.Store(true)
		}
		group.Wait()
		must(t, err)
		noSession(t, first, id)
		for n := range made {
			if c := get(t, second, fmt.Sprint(id, "-", n)); c.Status.Live() {
				t.Fatalf("round %d: of %d claims one is left behind: %+v", round, made, c)
			}
		}
	}
}

// sameNewSession opens a session at several servers at once.
func sameNewSession(t testing.TB, e Engine) {
	stores := servers(t, e, 3)
	for round := range 10 {
		id := fmt.Sprint("s", round)
		for _, a := range together(t, stores, func(i int) claim.Command { return attach(id, fmt.Sprint("server", i)) }) {
			must(t, a.err)
		}
		s := session(t, e.Store, id)
		answers := together(t, stores, func(i int) claim.Command {
			cmd := bound(fmt.Sprint(id, i), fmt.Sprint("of ", i), id)
			cmd.Server = fmt.Sprint("server", i)
			return cmd
		})
		for i, a := range answers {
			if attached := s.Server == fmt.Sprint("server", i); attached != (a.err == nil) || !attached && !errors.Is(a.err, claim.ErrNotAttached) {
				t.Errorf("attached to %s: a claim by server %d: %v", s.Server, i, a.err)
			}
		}
	}
}
