package sqlite_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/sqlite"
	"github.com/locket-service/locket/internal/claim"
)

func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func engine(t testing.TB) dbtest.Engine {
	path := filepath.Join(t.TempDir(), "locket.db")
	s := open(t, path)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return dbtest.Engine{Store: s, Reopen: func(t testing.TB) db.Store {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, path)
		return s
	}}
}

func TestStore(t *testing.T) { dbtest.RunAlone(t, engine) }

func TestOneServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locket.db")
	first := open(t, path)
	if _, err := sqlite.Open(path); !errors.Is(err, db.ErrInUse) {
		t.Fatalf("a second server: %v", err)
	}
	dbtest.Do(t, first, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, path)
	defer func() { _ = second.Close() }()
	if c, err := second.Holder(t.Context(), "r"); err != nil || c.ID != "a" {
		t.Errorf("holder %q (%v)", c.ID, err)
	}
}

// change runs a statement on a database that no server has open.
func change(t *testing.T, path, sql string) {
	t.Helper()
	conn, err := zombiezen.OpenConn(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sqlitex.ExecuteTransient(conn, sql, nil), conn.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestNewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locket.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	change(t, path, "PRAGMA user_version = 1000")
	for range 2 { // a refusal leaves the lock free
		if _, err := sqlite.Open(path); !errors.Is(err, db.ErrNewerSchema) {
			t.Fatalf("a newer schema: %v", err)
		}
	}
}

func TestNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locket.db")
	change(t, path, "CREATE TABLE claims (other)")
	for range 2 {
		if _, err := sqlite.Open(path); err == nil || errors.Is(err, db.ErrInUse) {
			t.Fatalf("tables of another program: %v", err)
		}
	}
	if _, err := sqlite.Open(filepath.Join(t.TempDir(), "none", "locket.db")); err == nil {
		t.Fatal("a folder that is not there was opened")
	}
}

// TestBubble shows that other packages' tests can use the engine with a fake clock.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t)
		start := time.Now()
		dbtest.Do(t, e.Store, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Minute})
		for range 240 {
			time.Sleep(db.BeatInterval)
			if err := e.Store.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		due, err := e.Store.Due(t.Context(), 0, 1)
		if err != nil || len(due) != 1 {
			t.Errorf("due after a minute: %q (%v)", due, err)
		}
		now, err := e.Store.Now(t.Context())
		if err != nil || now.Wall.Std().Sub(start.UTC()) != time.Minute {
			t.Errorf("now %s, started at %s (%v)", now.Wall.Std(), start, err)
		}
	})
}

func BenchmarkFlat(b *testing.B) {
	dbtest.Benchmark(b, func(t testing.TB) db.Store {
		s, err := sqlite.Open(filepath.Join(t.TempDir(), "locket.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}
