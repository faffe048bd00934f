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
	dsn := fixtures.MySQL(t)
	conn := earlier(t, dsn)
	if err := makeTurns(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	turn := func(server string, want bool) {
		t.Helper()
		if mine, err := takeTurn(t.Context(), conn, server); err != nil || mine != want {
			t.Errorf("the turn of %s: %t (%v), want %t", server, mine, err, want)
		}
	}
	turn("a", true)
	turn("b", false)
	turn("a", true)
	endTurn(t.Context(), conn, "b")
	turn("b", false)
	endTurn(t.Context(), conn, "a")
	turn("b", true)
	began := time.Now()
	if _, err := conn.ExecContext(t.Context(), "UPDATE locket_turn SET until = "+nowSQL+" + 1000000"); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { open(t, dsn) })
	}
	group.Wait()
	if took := time.Since(began); took < 900*time.Millisecond { // real time: they wait for the turn to end, at any speed
		t.Errorf("they migrated after %v, in the turn of another server", took)
	}
	turn("c", true) // the turn was given back
}
