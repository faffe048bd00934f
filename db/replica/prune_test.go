package replica_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// endSome creates and ends claims with some numbers, one after the other.
func (s *server) endSome(from, to int) {
	s.c.Helper()
	for n := from; n < to; n++ {
		time.Sleep(time.Millisecond) // real time: none, clusters run in bubbles
		dbtest.Do(s.c, remote{s.store, s.c}, create(n), claim.End{ID: fmt.Sprint(n)})
	}
}

// answers returns the answers of a server about ended claims: to lookups, to a list, and to a repeated request.
func (s *server) answers(claims int) (answers []string) {
	s.c.Helper()
	for n := range claims {
		c, _, _, err := s.store.Get(s.c.Context(), fmt.Sprint(n), 0)
		if err != nil && !errors.Is(err, claim.ErrNotFound) {
			s.c.Errorf("server %d, claim %d: %v", s.n, n, err)
		}
		answers = append(answers, fmt.Sprint(c.Status))
	}
	listed, _, err := s.store.List(s.c.Context(), db.Filter{Statuses: []claim.Status{claim.Released}})
	if err != nil {
		s.c.Error(err)
	}
	for _, c := range listed {
		answers = append(answers, c.ID)
	}
	end, err := db.Transact(s.c.Context(), s.store, db.Batch{Requests: []claim.Request{{Command: claim.End{ID: "3"}}, {Command: claim.End{ID: "25"}}}})
	if err != nil {
		s.c.Fatal(err)
	}
	return append(answers, fmt.Sprint(end.Answers[0].Err, end.Answers[1].Err))
}

// TestSameHistoryAfterPruning: whichever server prunes, and whatever it has written of the history by then, all servers have the same
// history: also a server that was away, and a server that joins with a snapshot. A repeated request gets the same answer from each.
func TestSameHistoryAfterPruning(t *testing.T) {
	inCluster(t, 3, func(c *cluster) {
		const claims = 60
		c.servers[1].clock.set(time.Hour)
		c.servers[0].endSome(0, claims/2)
		c.servers[2].stop(true)
		c.servers[1].endSome(claims/2, claims)
		for n, s := range c.servers[:2] {
			if got, err := s.store.Prune(c.Context(), claim.Forever, 10); got != 10 || err != nil {
				c.Errorf("server %d has deleted %d (%v)", n, got, err)
			}
		}
		c.servers[2].start()
		answers := func(prefix string, servers ...*server) {
			want := c.servers[0].answers(claims)
			for _, s := range servers {
				if got := s.answers(claims); !reflect.DeepEqual(got, want) {
					c.Errorf("%s, server %d answers %v, want %v", prefix, s.n, got, want)
				}
			}
		}
		answers("at once", c.servers[1:]...)
		if got, err := c.servers[2].store.Prune(c.Context(), claim.Forever, 3); got != 3 || err != nil {
			c.Errorf("server 2 has deleted %d (%v)", got, err)
		}
		answers("after another one", c.servers[1:]...)
		c.same()
		for _, s := range c.servers {
			if err := s.store.WriteHistory(); err != nil {
				c.Error(err)
			}
		}
		want := rowsOf(c, c.servers[0].folder)
		for _, s := range c.servers[1:] {
			if got := rowsOf(c, s.folder); len(want) != claims-23 || !reflect.DeepEqual(got, want) {
				c.Errorf("server %d has %d rows, and server 0 has %d", s.n, len(got), len(want))
			}
		}
		dbtest.Do(c, remote{c.servers[2].store, c}, create(3), claim.End{ID: "3"}) // its id is free
		answers("after an id was used again", c.servers[1:]...)
		c.servers[1].stop(false)
		c.servers[1].start()
		answers("after a restart", c.servers[1:]...)
	})
}

// TestPrunedBeforeSnapshot: a history that ends before a snapshot loses what was pruned before the snapshot, and so does a history that
// is filled by a server that has not deleted it yet.
func TestPrunedBeforeSnapshot(t *testing.T) {
	from := filled(t, 600)
	older := from.goOn(t)
	if n, err := from.Prune(t.Context(), claim.Forever, 100); n != 100 || err != nil {
		t.Fatalf("%d are deleted (%v)", n, err)
	}
	if err := from.Snapshot(); err != nil {
		t.Fatal(err)
	}
	if err := replica.ReceiveSnapshot(older, from.log(t), 0, send(t, from)); err != nil {
		t.Fatal(err)
	}
	to := &source{folder: older}
	to.open(t)
	ranges := 0
	if err := to.ReceiveHistory(t.Context(), sendHistory(t, from, 1<<30, &ranges)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(from.WriteHistory(), to.WriteHistory()); err != nil {
		t.Error(err)
	}
	if want, got := rowsOf(t, from.folder), rowsOf(t, to.folder); !reflect.DeepEqual(want, got) || len(want) == 0 {
		t.Errorf("%d rows, and %d in the other store", len(got), len(want))
	}
}

// TestCuts: a list of cuts deletes what its cuts delete, and keeps none that another one covers.
func TestCuts(t *testing.T) {
	cut := func(entry uint64, finished claim.Time, id string) record.Cut {
		return record.Cut{Entry: entry, Finished: finished, ID: id}
	}
	var cuts record.Cuts
	for _, c := range []record.Cut{cut(5, 100, "b"), cut(3, 100, "a"), cut(5, 100, "a"), cut(9, 50, "")} {
		cuts.Add(c)
	}
	if want := (record.Cuts{cut(5, 100, "b"), cut(9, 50, "")}); !reflect.DeepEqual(cuts, want) {
		t.Errorf("the cuts are %v, want %v", cuts, want)
	}
	for _, tc := range []struct {
		entry    uint64
		finished claim.Time
		id       string
		deleted  bool
	}{{5, 100, "b", true}, {5, 100, "c", false}, {5, 99, "c", true}, {6, 99, "c", false}, {9, 50, "", true}, {9, 50, "a", false}, {9, 49, "a", true}, {10, 0, "", false}} {
		if got := cuts.Delete(tc.entry, &claim.Claim{ID: tc.id, Finished: tc.finished}); got != tc.deleted {
			t.Errorf("%+v: deleted %t", tc, got)
		}
	}
	for n := range claim.Time(100) {
		if c := cut(uint64(10+n), 40-n, ""); cuts.Takes(c) {
			cuts.Add(c)
		}
	}
	if len(cuts) > 16 || cuts.Takes(cut(1000, 0, "")) || !cuts.Takes(cut(1000, 1000, "")) {
		t.Errorf("%d cuts", len(cuts))
	}
}

// TestTidyInSteps: cuts hide more claims than one transaction deletes, and then delete all of them.
func TestTidyInSteps(t *testing.T) {
	s := filled(t, 3600)
	if err := s.WriteHistory(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Prune(t.Context(), claim.Forever, 2300); n != 2300 || err != nil {
		t.Errorf("%d are deleted (%v)", n, err)
	}
	if rows := rowsOf(t, s.folder); len(rows) != 100 {
		t.Errorf("%d rows are left", len(rows))
	}
	if n, err := s.Census(t.Context(), 0); n.Finished != 100 || err != nil {
		t.Errorf("%d are counted (%v)", n.Finished, err)
	}
}
