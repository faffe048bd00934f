package mysql

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

func init() { fixtures.RunOnDisk() }

// TestVisibleIsDurable: a database on a disk that does not answer shows a commit, and a kill then undoes it. Nobody is
// told of the commit: neither the committer, nor a read or the feed of another server, nor another server's transaction
// that only reads.
func TestVisibleIsDurable(t *testing.T) {
	t.Parallel()
	disk := fixtures.NewDisk(t)
	visibleIsDurable(t, disk, fixtures.NewMariaDB(t, fixtures.WithDisk(disk), fixtures.WithServerArgs(withoutStatistics)))
}

// withoutStatistics keeps InnoDB from writing statistics: while it waits for the disk then, no transaction can open the table.
const withoutStatistics = "--innodb-stats-persistent=OFF"

func visibleIsDurable(t *testing.T, disk *fixtures.Disk, server *fixtures.MariaDB) {
	t.Helper()
	dsn := server.DSN("durable")
	a, b := open(t, dsn), openHasty(t, dsn) // a waits for the disk until the kill
	a.limits.outcome = time.Second
	dbtest.Do(t, a, claim.Create{ID: "first", Resource: "r", Owner: "one", TTL: time.Hour}, claim.Create{ID: "second", Resource: "r", Owner: "two", TTL: time.Hour})
	position, _, err := a.End(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	observer, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer observer.Close()
	transact := func(s *Store, cmd claim.Command) error {
		_, err := db.Transact(t.Context(), s, db.Batch{Requests: []claim.Request{{Command: cmd}}})
		return err
	}

	disk.Turn(fixtures.DiskHolds)
	var commit, calls sync.WaitGroup
	commit.Go(func() {
		if err := transact(a, claim.SetStatus{ID: "first", Status: claim.Released}); err == nil {
			t.Error("who committed it was told that it is done")
		}
	})
	eventually(t, "the commit is visible", func() bool {
		var status claim.Status
		err := observer.QueryRowContext(t.Context(), "SELECT status FROM claims WHERE id = 'second'").Scan(&status)
		return err == nil && status == claim.Active
	})
	for name, told := range map[string]func(ctx context.Context) error{
		"Get":      func(ctx context.Context) error { _, _, _, err := b.Get(ctx, "second", 0); return err },
		"Get none": func(ctx context.Context) error { _, _, _, err := b.Get(ctx, "none", 0); return err },
		"Holder":   func(ctx context.Context) error { _, err := b.Holder(ctx, "r"); return err },
		"Held": func(ctx context.Context) error {
			_, err := b.Live(ctx, db.LiveOf{Held: new(claim.Untyped)}, db.Page{})
			return err
		},
		"Live":  func(ctx context.Context) error { _, err := b.Live(ctx, db.LiveOf{}, db.Page{Limit: 10}); return err },
		"List":  func(ctx context.Context) error { _, _, err := b.List(ctx, db.Filter{}); return err },
		"Queue": func(ctx context.Context) error { _, _, err := b.Queue(ctx, "r", 10); return err },
		"Place": func(ctx context.Context) error { _, _, _, err := b.Get(ctx, "second", 10); return err },
		"WaitsOf": func(ctx context.Context) error {
			_, err := b.WaitsOf(ctx, []claim.OwnerKey{{Owner: "two"}}, 10)
			return err
		},
		"Resources": func(ctx context.Context) error { _, _, _, err := b.Resources(ctx, "", "", 10); return err },
		"Contended": func(ctx context.Context) error { _, _, err := b.Contended(ctx, "", nil, 10); return err },
		"Session":   func(ctx context.Context) error { _, _, err := b.Session(ctx, "none"); return err },
		"Sessions":  func(ctx context.Context) error { _, _, err := b.Sessions(ctx, "", 10); return err },
		"claims of": func(ctx context.Context) error {
			_, err := b.Live(ctx, db.LiveOf{Session: "none"}, db.Page{})
			return err
		},
		"End":      func(ctx context.Context) error { _, _, err := b.End(ctx, true); return err },
		"Changes":  func(ctx context.Context) error { _, err := b.Changes(ctx, position, false); return err },
		"own Get":  func(ctx context.Context) error { _, _, _, err := a.Get(ctx, "second", 0); return err },
		"own feed": func(ctx context.Context) error { _, err := a.Changes(ctx, position, true); return err },
	} {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			if err := told(ctx); err == nil || errors.Is(err, claim.ErrNotFound) || errors.Is(err, claim.ErrSessionEnded) {
				t.Errorf("%s told of a commit that is not on disk: %v", name, err)
			}
		})
	}
	calls.Go(func() {
		for _, cmd := range []claim.Command{claim.Acquire{ID: "x", Resource: "r", Owner: "x", TTL: time.Hour}, claim.SetStatus{ID: "first", Status: claim.Released}} {
			if err := transact(b, cmd); !errors.Is(err, db.ErrUnavailable) {
				t.Errorf("%T, which changes nothing, told of a commit that is not on disk: %v", cmd, err)
			}
		}
	})
	calls.Wait()

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	commit.Wait()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	disk.Turn(fixtures.DiskWorks)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var second claim.Claim
	eventually(t, "the database answers in time", func() bool {
		second, _, _, err = b.Get(t.Context(), "second", 0)
		return !errors.Is(err, db.ErrUnavailable)
	})
	if err != nil || second.Status != claim.Waiting {
		t.Errorf("after the kill: %v, %v", second, err)
	}
}

// TestBarriers: a read that may have seen a new commit of another server commits a barrier, once; a read of this
// server's own commits never does.
func TestBarriers(t *testing.T) {
	dsn := fixtures.MySQL(t)
	a, b := open(t, dsn), open(t, dsn)
	a.barriers.needed.Store(true) // whatever the database is
	b.barriers.needed.Store(true)
	begin := barriersOf(t, a)
	read := func(what string, s *Store, want int) {
		t.Helper()
		for range 3 {
			if _, err := s.Holder(t.Context(), "r"); err != nil {
				t.Error(err)
			}
			if _, err := s.Changes(t.Context(), nil, true); err != nil {
				t.Error(err)
			}
		}
		if got := barriersOf(t, a) - begin; got != want {
			t.Errorf("%s: %d barriers, want %d", what, got, want)
		}
	}
	dbtest.Do(t, a, claim.Create{ID: "1", Resource: "r", Owner: "o", TTL: time.Hour})
	read("own commits", a, 0)
	read("another server's", b, 1)
	dbtest.Do(t, b, claim.Create{ID: "2", Resource: "q", Owner: "o", TTL: time.Hour})
	read("own commits beside others that are known", b, 1)
	read("one more of another server", a, 2)
	dbtest.Do(t, a, claim.Create{ID: "3", Resource: "s", Owner: "o", TTL: time.Hour})
	a.name.change() // what became of the last one is not known
	read("own commits under another name", a, 3)
}

func barriersOf(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.control.QueryRow("SELECT COALESCE(SUM(floor + 1), 0) FROM meta WHERE one = 2").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
