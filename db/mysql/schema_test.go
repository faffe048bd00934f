package mysql

import (
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
)

// TestTurns: one server at a time migrates, and one that is gone keeps the others waiting for
// the rest of its lease only.
func TestTurns(t *testing.T) {
	t.Parallel()
	dsn := fixtures.MySQL(t)
	conn := halfMigrated(t, dsn)
	take := func(server string, want bool) {
		t.Helper()
		if mine, err := takeMigrationLease(t.Context(), conn, server); err != nil || mine != want {
			t.Errorf("the lease of %s: %t (%v), want %t", server, mine, err, want)
		}
	}
	lasts := func() { // however long it takes until the next server tries
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), "UPDATE locket_turn SET until = "+nowSQL+" + ?", time.Hour.Microseconds()); err != nil {
			t.Fatal(err)
		}
	}
	take("a", true)
	lasts()
	take("b", false)
	take("a", true)
	lasts()
	endMigrationLease(t.Context(), conn, "b")
	take("b", false)
	endMigrationLease(t.Context(), conn, "a")
	take("b", true)
	began := time.Now()
	if _, err := conn.ExecContext(t.Context(), "UPDATE locket_turn SET until = "+nowSQL+" + 1000000"); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { open(t, dsn) })
	}
	group.Wait()
	if took := time.Since(began); took < 900*time.Millisecond { // real time: they wait for the lease to end, at any speed
		t.Errorf("they migrated after %v, in the lease of another server", took)
	}
	take("c", true) // the lease was given back
}

// TestMigrationTwice: a migration that adds columns may be applied again.
func TestMigrationTwice(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	for range 2 {
		if err := applyScript(t.Context(), s.control, "ALTER TABLE members ADD COLUMN a INT; -- more; of it\nALTER TABLE members ADD COLUMN b INT;"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.control.ExecContext(t.Context(), "UPDATE members SET a = 1, b = 1"); err != nil {
		t.Error(err)
	}
}
