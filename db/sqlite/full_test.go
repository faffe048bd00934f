package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/internal/claim"
)

// TestFull: when the database is full, callers are told that nothing has changed, and that
// is so; when there is room again, it goes on.
func TestFull(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "locket.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.limit(t, 60)
	made := 0
	for ; err == nil; made++ {
		if made > 1000 {
			t.Fatal("it does not become full")
		}
		err = s.create(made)
	}
	if !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("full: got %v", err)
	}
	refused := made - 1
	if _, _, err := s.Get(t.Context(), fmt.Sprint(refused)); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("what was refused is there: %v", err)
	}
	if _, _, err := s.Get(t.Context(), fmt.Sprint(refused-1)); err != nil {
		t.Errorf("what was acknowledged: %v", err)
	}
	s.limit(t, 1<<20)
	dbtest.Do(t, s, claim.Create{ID: "again", Resource: "r", TTL: time.Hour})
}

// limit sets how many pages the database may have.
func (s *Store) limit(t *testing.T, pages int) {
	t.Helper()
	if err := sqlitex.ExecuteTransient(s.conn, fmt.Sprint("PRAGMA max_page_count = ", pages), nil); err != nil {
		t.Fatal(err)
	}
}

func (s *Store) create(n int) error {
	return s.Update(context.Background(), func(tx db.Tx) error {
		name := fmt.Sprint(n)
		queues, err := tx.Load(db.Wanted{Resources: []string{name}})
		if err != nil {
			return err
		}
		cmd := claim.Create{ID: name, Resource: name, TTL: time.Hour, Value: strings.Repeat("x", 10_000)}
		if _, err := queues.Do(cmd); err != nil {
			return err
		}
		return tx.Save(queues)
	})
}
