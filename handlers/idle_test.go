package handlers_test

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// idleStore counts the accesses of an idle server. An access that could change the database counts as a write.
type idleStore struct {
	db.Store
	reads, writes atomic.Int32
}

func (s *idleStore) Now(ctx context.Context) (claim.Instant, error) {
	s.reads.Add(1)
	return s.Store.Now(ctx)
}

func (s *idleStore) End(ctx context.Context, own bool) (db.Position, claim.Time, error) {
	s.reads.Add(1)
	return s.Store.End(ctx, own)
}

func (s *idleStore) Changes(ctx context.Context, after db.Position, own bool) ([]db.Commit, error) {
	s.reads.Add(1)
	return s.Store.Changes(ctx, after, own)
}

func (s *idleStore) Due(ctx context.Context, query db.DueQuery) (db.Overdue, error) {
	s.reads.Add(1)
	return s.Store.Due(ctx, query)
}

func (s *idleStore) Beat(ctx context.Context, resumes bool) error {
	s.writes.Add(1)
	return s.Store.Beat(ctx, resumes)
}

func (s *idleStore) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	s.writes.Add(1)
	return s.Store.Transact(ctx, batch)
}

// TestIdle: a server without leases writes nothing, and reads from the database at most three times a second. While
// there is a lease, it beats.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, store := t.TempDir(), &idleStore{}
		s := startWith(t, folder, func(real db.Store) db.Store { store.Store = real; return store })
		lock := func() {
			t.Helper()
			_, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource("k", "o"), TtlInSeconds: 600})
			must(t, err)
		}
		lock()
		_, err := s.Release(t.Context(), &models.ReleaseRequest{Resource: resource("k", "o")})
		must(t, err)
		time.Sleep(time.Minute) // longer than it remembers leases
		const span = 10 * time.Minute
		files := fileStates(t, folder)
		store.reads.Store(0)
		store.writes.Store(0)
		time.Sleep(span)
		if n := store.reads.Load(); n > 3*int32(span/time.Second) {
			t.Errorf("%d reads in %s", n, span)
		}
		if n, now := store.writes.Load(), fileStates(t, folder); n > 0 || now != files {
			t.Errorf("%d writes: %s, before %s", n, now, files)
		}
		lock()
		files = fileStates(t, folder)
		time.Sleep(10 * time.Second)
		if fileStates(t, folder) == files {
			t.Error("nothing is written while a lease is live")
		}
	})
}

// fileStates returns a value that differs after any change of a database's files.
func fileStates(t *testing.T, folder string) (state string) {
	t.Helper()
	must(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "-shm") { // shared memory is not a file of the database
			return err
		}
		info, err := entry.Info()
		if err == nil {
			state += fmt.Sprint(entry.Name(), " ", info.Size(), " ", info.ModTime(), "\n")
		}
		return err
	}))
	return state
}
