package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// openNew opens a new store. The caller closes it.
func openNew(t testing.TB) (s *Store, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "locket.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s, path
}

// writes are the methods that need the writing connection.
func (s *Store) writes() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Transact":       func(ctx context.Context) error { return s.Update(ctx, func(db.Tx) error { return nil }) },
		"Beat":           func(ctx context.Context) error { return s.Beat(ctx) },
		"Resume":         s.Resume,
		"Prune":          func(ctx context.Context) error { _, err := s.Prune(ctx, 1, 1); return err },
		"PruneResources": func(ctx context.Context) error { _, err := s.PruneResources(ctx, "", 1, 1); return err },
	}
}

// takes calls use with a deadline, which must end it: not before, and not later.
func takes(t *testing.T, name string, use func(context.Context) error, want error) {
	t.Helper()
	const limit = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	if err := use(ctx); !errors.Is(err, want) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: %v", name, err)
	}
	if took := time.Since(begin); took != limit {
		t.Errorf("%s took %s", name, took)
	}
}

// TestDeadlineOfWrites: a transaction that hangs in a read delays the others until their
// deadlines, and the end by closeTimeout. Nobody else gets the file while it hangs.
func TestDeadlineOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := openNew(t)
		gate, hung := make(chan struct{}), make(chan error)
		go func() { hung <- s.Update(context.Background(), func(db.Tx) error { <-gate; return nil }) }()
		synctest.Wait()
		for name, use := range s.writes() {
			takes(t, name, use, db.ErrUnavailable)
		}
		begin := time.Now()
		if err := s.Close(); !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(begin); took != closeTimeout {
			t.Errorf("Close took %s", took)
		}
		for name, use := range s.writes() {
			if err := use(t.Context()); !errors.Is(err, db.ErrUnavailable) {
				t.Errorf("%s of a closed store: %v", name, err)
			}
		}
		if _, err := Open(path); !errors.Is(err, db.ErrInUse) {
			t.Errorf("opened while a transaction is under way: %v", err)
		}
		close(gate)
		if err := <-hung; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		again, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDiskThatHangs: a commit that the disk does not confirm has an outcome that is not known;
// when the disk answers again, it has been carried out, and the store goes on.
func TestDiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openNew(t)
		gate, commit := make(chan struct{}), s.commit
		s.commit = func() error { <-gate; return commit() }
		before := *s.clock.Load()
		takes(t, "Beat", func(ctx context.Context) error { time.Sleep(10 * time.Millisecond); return s.Beat(ctx) }, db.ErrOutcomeUnknown)
		for name, use := range s.writes() {
			takes(t, name, use, db.ErrUnavailable)
		}
		if got := *s.clock.Load(); got != before {
			t.Errorf("the clock is %+v before the commit, was %+v", got, before)
		}
		close(gate)
		synctest.Wait()
		if got := *s.clock.Load(); got.Seen != before.Seen.Add(10*time.Millisecond) {
			t.Errorf("the clock is %+v after the commit, was %+v", got, before)
		}
		for name, use := range s.writes() {
			if err := use(t.Context()); err != nil {
				t.Errorf("%s afterwards: %v", name, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOtherWriter: another program has begun a transaction. Writes wait for it until their
// deadlines.
func TestOtherWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := openNew(t)
		other, err := sqlite.OpenConn(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := sqlitex.ExecuteTransient(other, "BEGIN IMMEDIATE", nil); err != nil {
			t.Fatal(err)
		}
		for name, use := range s.writes() {
			takes(t, name, use, db.ErrUnavailable)
		}
		ended := make(chan error, 1)
		time.AfterFunc(20*time.Second, func() { ended <- sqlitex.ExecuteTransient(other, "ROLLBACK", nil) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Beat(ctx); err != nil {
			t.Error(err)
		}
		if err := errors.Join(<-ended, other.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
}

// endless is a statement that does not end by itself.
const endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

// TestDeadlineOfStatements: the statements of a transaction end at the deadline, and nothing is
// saved.
func TestDeadlineOfStatements(t *testing.T) {
	s, _ := openNew(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := s.write(ctx, func() error {
		return errors.Join(s.insert("late"), sqlitex.ExecuteTransient(s.conn, endless, nil))
	}, func() { t.Error("it was committed") })
	if !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if _, _, err := s.Get(t.Context(), "late"); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("what was interrupted is there: %v", err)
	}
	if err := s.write(t.Context(), func() error { return s.insert("next") }, nil); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Get(t.Context(), "next"); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// insert is a statement of a transaction.
func (s *Store) insert(id string) error {
	return (&tx{w: s.writer}).insertClaim(&claim.Claim{ID: id, Resource: id, Status: claim.Released})
}

// TestPanic: a transaction that panics is rolled back, and the store goes on.
func TestPanic(t *testing.T) {
	s, _ := openNew(t)
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = s.write(t.Context(), func() error { _ = s.insert("a"); panic("boom") }, nil)
	}()
	if _, _, err := s.Get(t.Context(), "a"); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("it was saved: %v", err)
	}
	if err := errors.Join(s.Beat(t.Context()), s.Close()); err != nil {
		t.Error(err)
	}
}

// TestCaches: however many connections there are, their memory for pages is limited.
func TestCaches(t *testing.T) {
	s, _ := openNew(t)
	defer func() { _ = s.Close() }()
	total := 0
	add := func(conn *sqlite.Conn) error {
		return each(conn, "PRAGMA cache_size", func(row *sqlite.Stmt) { total -= row.ColumnInt(0) << 10 })
	}
	errs := []error{add(s.conn)}
	var taken []*sqlite.Conn
	for range readerCount() { // all of them, since none is given back
		conn, err := s.readers.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		errs = append(errs, add(conn))
		taken = append(taken, conn)
	}
	for _, conn := range taken {
		s.readers.Put(conn)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if len(taken) < 4 || total <= 0 || total > 96<<20 {
		t.Errorf("%d readers, %d bytes of cache", len(taken), total)
	}
}

// TestNothingToWrite: what changes nothing does not write to the disk.
func TestNothingToWrite(t *testing.T) {
	s, path := openNew(t)
	defer func() { _ = s.Close() }()
	if err := s.create(1); err != nil {
		t.Fatal(err)
	}
	files := func() (state string) {
		for _, part := range []string{"", "-wal"} {
			info, err := os.Stat(path + part)
			if err != nil {
				t.Fatal(err)
			}
			state += fmt.Sprint(info.Size(), info.ModTime(), " ")
		}
		return state
	}
	uses := s.writes()
	delete(uses, "Beat")
	delete(uses, "Resume")
	uses["Due"] = func(ctx context.Context) error { _, err := s.Due(ctx, 0, 10); return err }
	uses["NextDue"] = func(ctx context.Context) error { _, _, err := s.NextDue(ctx, 0); return err }
	before := files()
	for name, use := range uses {
		time.Sleep(2 * time.Millisecond) // real time: the time of a file takes notice of as much
		if err := use(t.Context()); err != nil {
			t.Error(err)
		}
		if after := files(); after != before {
			t.Errorf("%s wrote: %s, before %s", name, after, before)
			before = after
		}
	}
	if err := s.Beat(t.Context()); err != nil || files() == before {
		t.Errorf("a beat did not write (%v)", err)
	}
}
