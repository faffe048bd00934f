package mysql

import (
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
)

// TestServersThatAreGone: a server that has committed nothing for a long time leaves no cursor
// behind, so that the question for what is new does not grow with every server that ever was;
// and what it commits afterwards is read.
func TestServersThatAreGone(t *testing.T) {
	dsn := fixtures.MySQL(t)
	s, other := open(t, dsn), open(t, dsn)
	results(t, other, acquires("a")...)
	if _, err := s.Changes(t.Context()); err != nil || len(s.cursors) != 1 {
		t.Fatalf("cursors %v (%v)", s.cursors, err)
	}
	last := s.cursors[other.server]
	s.cursors[other.server] = cursor{last.n, time.Now().Add(-goneAge - time.Second)}
	if _, err := s.reader.Exec("DELETE FROM feed WHERE server = ?", other.server); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Changes(t.Context()); err != nil || len(s.cursors) != 0 {
		t.Errorf("cursors %v (%v)", s.cursors, err)
	}
	results(t, other, acquires("b")...)
	if _, err := s.Changes(t.Context()); err != nil || s.cursors[other.server].n <= last.n {
		t.Errorf("cursors %v (%v)", s.cursors, err)
	}
}
