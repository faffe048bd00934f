package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/access"
	"github.com/locket-service/locket/internal/claim"
)

func TestIdentityClaims(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	if err := s.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	dbtest.IdentityClaims(t, s, func() (n int) {
		if err := s.reader.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM identity_claims").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	})
}

// TestBusyIdentity: an identity with a quota that makes and ends any number of claims has few rows to count, whether they end in transactions that count it or in
// others, as at another server.
func TestBusyIdentity(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	const rounds, per = 10, 300
	rows := func() (n int) {
		must(t, s.reader.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM identity_claims").Scan(&n))
		return n
	}
	// round makes some claims, and then ends them.
	round := func(n int, counted map[string]claim.Count) {
		var makes, ends []claim.Request
		for i := range per {
			caller, id := access.Caller{Identity: access.Identity{Name: "cert:a"}}, fmt.Sprint(n, " ", i)
			makes = append(makes, claim.Request{Caller: caller, Command: claim.Acquire{ID: id, Resource: id, Owner: "o", TTL: time.Hour}})
			ends = append(ends, claim.Request{Caller: caller, Command: claim.End{ID: id}})
		}
		_, err := s.Transact(t.Context(), db.Batch{Requests: makes, Known: map[string]claim.Count{"cert:a": {}}})
		must(t, err)
		_, err = s.Transact(t.Context(), db.Batch{Requests: ends, Known: counted})
		must(t, err)
	}
	for n := range rounds {
		round(n, map[string]claim.Count{"cert:a": {Active: per}})
	}
	if n := rows(); n != 0 {
		t.Errorf("%d rows after ends that were counted", n)
	}
	for n := range rounds {
		round(rounds+n, nil)
	}
	if n := rows(); n != rounds*per {
		t.Errorf("%d rows after ends that were not counted", n)
	}
	eventually(t, "the janitor has forgotten them", func() bool {
		s.forgotten = time.Time{}
		_, err := s.Prune(t.Context(), 0, 200)
		must(t, err)
		return rows() == 0
	})
	if c, err := s.Count(t.Context()); err != nil || c.Finished != 2*rounds*per {
		t.Errorf("%+v (%v)", c, err)
	}
}

// TestPruneBesideLockedRow: an ended claim that somebody keeps locked keeps no other one from being deleted.
func TestPruneBesideLockedRow(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	for _, name := range []string{"a", "b", "c"} {
		results(t, s, acquires(name)...)
		results(t, s, claim.End{ID: "id-" + name})
	}
	foreign := keepsLocked(t, s, "SELECT id FROM claims WHERE id = 'id-a' FOR UPDATE")
	now, err := s.Now(t.Context())
	must(t, err)
	if n, err := s.Prune(t.Context(), now.Wall.Add(time.Hour), 200); n != 2 || err != nil {
		t.Errorf("%d are deleted beside it (%v)", n, err)
	}
	must(t, foreign.Rollback())
	if n, err := s.Prune(t.Context(), now.Wall.Add(time.Hour), 200); n != 1 || err != nil {
		t.Errorf("%d are deleted afterwards (%v)", n, err)
	}
}

// TestCountThatTakesLong: a count that takes longer than a transaction may goes on in the next one where it has stopped.
func TestCountThatTakesLong(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	const many = 2*countStep + 1000
	allowRecursion(t, s)
	_, err := s.scanner.Exec(fmt.Sprintf(`INSERT INTO identity_claims (identity, claim) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		SELECT 'a', LPAD(i, 8, '0') FROM n`, many))
	must(t, err)
	_, err = s.scanner.Exec("INSERT INTO claims (" + firstColumns + ", identity) SELECT claim, claim, 'o', 0, 0, 1, NULL, '', 2, 1, 1, 1, 1, 1, 1, 1, '', 'a' FROM identity_claims")
	must(t, err)
	batch := db.Batch{Unknown: []string{"a", "none"}, Requests: []claim.Request{{Command: acquires("x")[0]}}}
	for timeout := time.Millisecond; len(s.countings["a"].to) < 8; timeout = timeout*5/4 + 1 {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		if _, err := s.Transact(ctx, batch); err == nil {
			timeout = time.Millisecond // it has counted all of them at once
		}
		cancel()
	}
	_, err = s.scanner.Exec("DELETE FROM identity_claims WHERE claim <= ?", s.countings["a"].to)
	must(t, err)
	counted := s.countings["a"]
	counted.asked = time.Now().Add(hangs) // however long that took, and the next transaction takes to begin
	s.countings["a"] = counted
	outcome, err := s.Transact(t.Context(), batch)
	must(t, err)
	if c := outcome.Counts["a"]; c != (claim.Count{Active: many}) {
		t.Errorf("%+v are counted of %d", c, many)
	}
	if len(s.countings) > 0 {
		t.Errorf("what was used is kept: %v", s.countings)
	}
}

// TestCountBesideChanges: what a transaction has counted that then failed is right also where others of this server change claims before it is used.
func TestCountBesideChanges(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	known := 0
	makes := func(names ...string) {
		t.Helper()
		for _, name := range names {
			_, err := s.Transact(t.Context(), db.Batch{
				Requests: []claim.Request{{Caller: access.Caller{Identity: access.Identity{Name: "a"}}, Command: acquires(name)[0]}},
				Known:    map[string]claim.Count{"a": {Active: known}},
			})
			must(t, err)
			known++
		}
	}
	ends := func(name string) {
		results(t, s, claim.End{ID: "id-" + name})
		known--
	}
	counts := func() {
		t.Helper()
		outcome, err := s.Transact(t.Context(), db.Batch{Unknown: []string{"a"}, Requests: []claim.Request{{Command: acquires("of another")[0]}}})
		must(t, err)
		if c := outcome.Counts["a"]; c != (claim.Count{Active: known}) {
			t.Errorf("%+v are counted of %d", c, known)
		}
	}
	makes("0", "1", "2")
	err := s.Update(t.Context(), func(tx db.Tx) error {
		_, err := tx.Load(db.Wanted{Identities: []string{"a"}})
		return errors.Join(err, errors.ErrUnsupported)
	})
	if !errors.Is(err, errors.ErrUnsupported) || s.countings["a"].Active != 3 {
		t.Fatalf("%v: %v", err, s.countings)
	}
	makes("3", "4")
	ends("0")
	counts()
	s.countings["a"] = counting{Count: claim.Count{Active: 1}, to: []byte("id-1"), asked: time.Now()} // a part
	makes("01", "02", "5")
	ends("1")
	ends("2")
	counts()
}

// TestCountingsAreForgotten: what was counted is used while its identity is asked for again and again, and a count to the end, which nothing adds to any
// more, for countingTime at most.
func TestCountingsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(countings)
		identities := []string{"all", "part"}
		count := func(identity string, to []byte) {
			of := c[identity]
			of.to = to
			c[identity] = of
		}
		c.begin(identities)
		count("all", allCounted)
		count("part", []byte("5"))
		if left := c.begin(identities); !slices.Equal(left, identities[1:]) {
			t.Errorf("%q are to be counted at once", left)
		}
		for range 3 {
			time.Sleep(countingTime/2 + time.Second)
			c.begin(identities)
		}
		if all, part := c["all"].to, c["part"].to; all != nil || part == nil {
			t.Errorf("after %s one is counted up to %q, the other up to %q", countingTime, all, part)
		}
		time.Sleep(time.Hour)
		c.begin(identities)
		if part := c["part"].to; part != nil {
			t.Errorf("an hour later it is counted up to %q", part)
		}
	})
}

// allowRecursion lets the database make many rows in one statement.
func allowRecursion(t *testing.T, s *Store) {
	t.Helper()
	for _, variable := range []string{"cte_max_recursion_depth", "max_recursive_iterations"} { // MySQL's, MariaDB's
		if _, err := s.scanner.Exec("SET SESSION " + variable + " = 100000"); err != nil && !isCode(err, codeUnknownVariable) {
			t.Fatal(err)
		}
	}
}

// TestPruneBesideLockedIdentity: a claim in the list of an identity that somebody keeps locked keeps no ended claim from being deleted, and leaves the
// list later.
func TestPruneBesideLockedIdentity(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	for _, name := range []string{"a", "b"} {
		caller := access.Caller{Identity: access.Identity{Name: "cert:" + name}}
		_, err := s.Transact(t.Context(), db.Batch{
			Requests: []claim.Request{{Caller: caller, Command: acquires(name)[0]}}, Known: map[string]claim.Count{"cert:" + name: {}},
		})
		must(t, err)
		results(t, s, claim.End{ID: "id-" + name})
	}
	foreign := keepsLocked(t, s, "SELECT claim FROM identity_claims WHERE identity = 'cert:a' FOR UPDATE")
	now, err := s.Now(t.Context())
	must(t, err)
	if n, err := s.Prune(t.Context(), now.Wall.Add(time.Hour), 200); n != 2 || err != nil {
		t.Errorf("%d are deleted beside it (%v)", n, err)
	}
	must(t, foreign.Rollback())
	s.forgotten = time.Time{}
	_, err = s.Prune(t.Context(), now.Wall.Add(time.Hour), 200)
	must(t, err)
	var left int
	must(t, s.reader.QueryRow("SELECT COUNT(*) FROM identity_claims").Scan(&left))
	if left != 0 {
		t.Errorf("%d are left in the lists", left)
	}
}

// TestPruneBesideLockedIdentities: the janitor waits for one of the rows that somebody keeps locked, however many identities have one, and goes on.
func TestPruneBesideLockedIdentities(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	const identities = 4
	for n := range identities {
		name := fmt.Sprint(n)
		_, err := s.Transact(t.Context(), db.Batch{
			Requests: []claim.Request{{Caller: access.Caller{Identity: access.Identity{Name: name}}, Command: acquires(name)[0]}}, Known: map[string]claim.Count{name: {}},
		})
		must(t, err)
		results(t, s, claim.End{ID: "id-" + name})
	}
	keepsLocked(t, s, "SELECT claim FROM identity_claims FOR UPDATE")
	waits := func() (n int) {
		var name string
		must(t, s.control.QueryRow("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'").Scan(&name, &n))
		return n
	}
	before := waits()
	s.forgotten = time.Now().Add(hangs) // their turn is another time, however long this takes
	now, err := s.Now(t.Context())
	must(t, err)
	if n, err := s.Prune(t.Context(), now.Wall.Add(time.Hour), 200); n != identities || err != nil {
		t.Errorf("%d are deleted beside them (%v)", n, err)
	}
	if n := waits() - before; n != 1 {
		t.Errorf("it has waited for %d rows", n)
	}
}
