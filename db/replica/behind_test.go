package replica_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestHistoryThatFails: while the history cannot be written the locks go on, and the log and the warnings say so; it is
// written by itself when it can be.
func TestHistoryThatFails(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	var log fixtures.Buffer
	s, err := replica.OpenWith(folder, replica.Options{Delay: time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	file, err := sqlite.OpenConn(filepath.Join(folder, "history.db"), sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	rename := func(from, to string) {
		if err := sqlitex.ExecuteTransient(file, "ALTER TABLE "+from+" RENAME TO "+to, nil); err != nil {
			t.Fatal(err)
		}
	}
	await := func(what string, is func() bool) {
		for deadline := time.Now().Add(5 * time.Minute); !is(); {
			time.Sleep(time.Millisecond) // real time: a file is written
			if time.Now().After(deadline) {
				t.Fatalf("not %s: %q; %s", what, s.About().Warnings, log.String())
			}
		}
	}
	rename("position", "away")
	if err := errors.Join(do(s, create(1)), do(s, claim.End{ID: "1"})); err != nil {
		t.Fatal(err)
	}
	await("reported", func() bool { return len(s.About().Warnings) == 1 && strings.Contains(log.String(), "no such table") })
	if err := errors.Join(do(s, create(2)), do(s, claim.End{ID: "2"})); err != nil {
		t.Errorf("while it fails: %v", err)
	}
	rename("away", "position")
	await("written again", func() bool { return len(s.About().Warnings) == 0 && strings.Contains(log.String(), "written again") })
}

// TestHistoryWithoutTable: a history whose table has another name for a while is not written, whatever number of claims has ended meanwhile, and gets
// all of them afterwards.
func TestHistoryWithoutTable(t *testing.T) {
	const claims = 4
	folder := filepath.Join(t.TempDir(), "data")
	s, err := replica.OpenWith(folder, replica.Options{Delay: time.Hour}) // the history is not written by itself
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for n := range claims {
		dbtest.Do(t, s, create(n))
	}
	change(t, folder, "ALTER TABLE claims RENAME TO away")
	for n := range claims {
		dbtest.Do(t, s, claim.End{ID: fmt.Sprint(n)})
		if err := s.WriteHistory(); !errors.Is(err, db.ErrUnavailable) || !strings.Contains(err.Error(), historyFile) {
			t.Errorf("%d claims are written: %v", n+1, err)
		}
	}
	change(t, folder, "ALTER TABLE away RENAME TO claims")
	if err := s.WriteHistory(); err != nil {
		t.Error(err)
	}
	if n, err := s.Prune(t.Context(), claim.Forever, 2*claims); n != claims || err != nil {
		t.Errorf("the history has %d claims (%v)", n, err)
	}
}

// slowDisk is a disk each of whose writes takes as long as a function.
type slowDisk struct {
	disktest.Folder
	write func()
}

func (d slowDisk) Create(name string) (disk.File, error) {
	f, err := d.Folder.Create(name)
	return slowFile{f, d.write}, err
}

type slowFile struct {
	disk.File
	write func()
}

func (f slowFile) WriteAt(b []byte, at int64) (int, error) {
	f.write()
	return f.File.WriteAt(b, at)
}

// TestHistoryDuringSnapshot: the history is written while a snapshot is made, when commits wait for it.
func TestHistoryDuringSnapshot(t *testing.T) {
	const claims, bytes, ends = 80, 60 << 10, 20
	var s *replica.Store
	writes := 0
	snapshots := slowDisk{disktest.Folder(t.TempDir()), func() {
		switch writes++; writes {
		case 1:
			var cmds []claim.Command
			for n := range ends {
				cmds = append(cmds, claim.End{ID: fmt.Sprint(n)})
			}
			dbtest.Do(t, s, cmds...)
			if !s.Late() {
				t.Error("commits do not wait for the history")
			}
		case 2:
			if s.Late() {
				t.Error("commits wait for the snapshot")
			}
		}
	}}
	var err error
	s, err = replica.OpenWith(filepath.Join(t.TempDir(), "data"), replica.Options{PendingBytes: 2 * ends * bytes, Snapshots: snapshots})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for n := range claims {
		if err := do(s, claim.Create{ID: fmt.Sprint(n), Resource: fmt.Sprint("r", n), TTL: time.Hour, Value: strings.Repeat("v", bytes)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Snapshot(); err != nil || writes < 2 {
		t.Errorf("after %d writes: %v", writes, err)
	}
	for n := range claims {
		if c, _, _, err := s.Get(t.Context(), fmt.Sprint(n), 0); err != nil || (c.Status == claim.Released) != (n < ends) {
			t.Errorf("claim %d is %v: %v", n, c.Status, err)
		}
	}
}

// TestHistoryKeepsUp: however fast large claims end, the history gets them all, because requests that end claims wait
// while it is written; even while no snapshot can be made.
func TestHistoryKeepsUp(t *testing.T) {
	for _, full := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { // the disk is not too slow, whatever else this machine does
			const claims, bytes, atOnce = 80, 60 << 10, 8
			options, snapshots := small, disktest.New()
			options.PendingBytes, options.Snapshots = 2*atOnce*bytes, snapshots
			if full {
				snapshots.SetFault(func(string) error { return syscall.ENOSPC })
			}
			folder := filepath.Join(t.TempDir(), "data")
			s, err := replica.OpenWith(folder, options)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			for n := range claims {
				if err := do(s, claim.Create{ID: fmt.Sprint(n), Resource: fmt.Sprint("r", n), TTL: time.Hour, Value: strings.Repeat("v", bytes)}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute) // the snapshot has been made, or could not be
			if warnings := s.About().Warnings; len(warnings) > 0 != full {
				t.Error(warnings)
			}
			for n := 0; n < claims; n += atOnce {
				var ends []claim.Command
				for i := range atOnce {
					ends = append(ends, claim.End{ID: fmt.Sprint(n + i)})
				}
				dbtest.Do(t, s, ends...)
			}
			for n := range claims {
				if c, _, _, err := s.Get(t.Context(), fmt.Sprint(n), 0); err != nil || c.Status != claim.Released || len(c.Value) != bytes {
					t.Fatalf("claim %d is %v, with %d bytes: %v", n, c.Status, len(c.Value), err)
				}
			}
			if err := s.WriteHistory(); err != nil {
				t.Error(err)
			}
			if n := gaps(t, filepath.Join(folder, historyFile)); n > 0 {
				t.Errorf("the history has %d gaps", n)
			}
		})
	}
}

// TestPruneBesideHangingDisk: a deletion from the history returns when its context ends, even while a writer of a
// snapshot or of the history waits for a hanging disk. Otherwise no server with such a disk would stop.
func TestPruneBesideHangingDisk(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	begun, gate, first := make(chan struct{}), make(chan struct{}), true
	snapshots := slowDisk{disktest.Folder(t.TempDir()), func() {
		if first {
			close(begun)
		}
		first = false
		<-gate
	}}
	s, err := replica.OpenWith(folder, replica.Options{Snapshots: snapshots, Delay: time.Hour}) // the history is not written by itself
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	leaves := func(when string) {
		t.Helper()
		for name, ask := range map[string]func(context.Context) error{
			"Prune":  func(ctx context.Context) error { _, err := s.Prune(ctx, claim.Forever, 10); return err },
			"Census": func(ctx context.Context) error { _, err := s.Census(ctx, 1); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- ask(ctx) }()
			select {
			case err := <-ended:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, %s: %v", when, name, err)
				}
			case <-time.After(2 * time.Minute): // real time: for a test that hangs
				t.Fatalf("%s, %s: it waits", when, name)
			}
		}
	}
	dbtest.Do(t, s, create(0), claim.End{ID: "0"})
	snapshot := make(chan error, 1)
	go func() { snapshot <- s.Snapshot() }()
	<-begun
	leaves("while a snapshot is written")
	close(gate)
	if err := <-snapshot; err != nil {
		t.Error(err)
	}

	dbtest.Do(t, s, create(1), claim.End{ID: "1"})
	other, err := sqlite.OpenConn(filepath.Join(folder, "history.db"), sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := sqlitex.ExecuteTransient(other, "BEGIN IMMEDIATE", nil); err != nil {
		t.Fatal(err)
	}
	leaves("while the history is written")
	if err := sqlitex.ExecuteTransient(other, "COMMIT", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(t.Context(), claim.Forever, 10); err != nil {
		t.Error(err)
	}
	if n, err := s.Census(t.Context(), 0); err != nil || n != (db.Census{}) {
		t.Errorf("left are %+v (%v)", n, err)
	}
}

// TestLogWithoutHistory: the log stays bounded while the history cannot be written. A server that restarts after that
// has lost only ended claims, and the history records a gap for them; an old history is still refused.
func TestLogWithoutHistory(t *testing.T) {
	const limit = 256 << 10
	options := small
	options.LogBytes = limit
	open := func(folder string) *replica.Store {
		t.Helper()
		s, err := replica.OpenWith(folder, options)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	folder := used(t)
	file := filepath.Join(folder, historyFile)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := open(folder)
	dbtest.Do(t, s, create(10), claim.End{ID: "10"})
	if err := s.WriteHistory(); err != nil {
		t.Fatal(err)
	}
	change(t, folder, "CREATE TRIGGER refused BEFORE INSERT ON claims BEGIN SELECT RAISE(ABORT, 'refused'); END")
	end := time.Now().Add(5 * time.Minute)
	for n, written := 11, 0; written < 8*limit || s.LogBytes() > 2*limit || len(s.About().Warnings) == 0; n++ {
		if time.Now().After(end) {
			t.Fatalf("the log has %d bytes of %d, and the warnings are %q", s.LogBytes(), written, s.About().Warnings)
		}
		enough := written >= 8*limit
		if enough { // now the work behind the commits can keep up
			time.Sleep(10 * time.Millisecond) // real time: it waits for a condition
		}
		made := create(n)
		made.Value = strings.Repeat("v", 5000)
		dbtest.Do(t, s, made)
		if n%5 > 0 || enough { // the larger a snapshot, the larger the log may be
			dbtest.Do(t, s, claim.End{ID: made.ID})
		}
		written += len(made.Value)
	}
	state := s.Dump()
	_ = s.Close() // it cannot write the history

	if found := inspect(folder); found.finds() {
		t.Errorf("the check says %s", found.says())
	}
	older := copyOf(t, folder)
	for _, name := range []string{"-wal", "-shm"} {
		if err := os.Remove(filepath.Join(older, historyFile+name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(older, historyFile), before, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "a history of before", older, historyFile)
	s = open(folder)
	if string(s.Dump()) != string(state) {
		t.Error("the state is another one")
	}
	if c, _, _, err := s.Get(t.Context(), "10", 0); err != nil || c.Status != claim.Released {
		t.Errorf("what the history had is %v (%v)", c.Status, err)
	}
	change(t, folder, "DROP TRIGGER refused")
	dbtest.Do(t, s, create(1), claim.End{ID: "1"})
	if err := errors.Join(s.WriteHistory(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if n := gaps(t, file); n != 1 {
		t.Errorf("the history notes %d gaps", n)
	}
	if found := inspect(folder); found.finds() {
		t.Errorf("in the end the check says %s", found.says())
	}
	if err := open(folder).Close(); err != nil {
		t.Error(err)
	}
}

// TestIDAgainInLog: a claim reuses the id of an older one that the log still has, and the history no longer does. When
// the log is read again there is one claim, and the history gets the new one.
func TestIDAgainInLog(t *testing.T) {
	for name, forget := range map[string]func(t *testing.T, s *replica.Store, folder string) (killed func(folder string)){
		"it was given up": func(t *testing.T, s *replica.Store, folder string) func(string) {
			change(t, folder, "CREATE TRIGGER refused BEFORE INSERT ON claims BEGIN SELECT RAISE(ABORT, 'refused'); END")
			if err := s.WriteHistory(); !errors.Is(err, db.ErrUnavailable) {
				t.Errorf("the history is written: %v", err)
			}
			for n := 1; n < 100; n++ {
				dbtest.Do(t, s, create(n), claim.End{ID: fmt.Sprint(n)})
			}
			change(t, folder, "DROP TRIGGER refused")
			return func(string) {}
		},
		"the history is begun anew": func(t *testing.T, s *replica.Store, _ string) func(string) {
			if n, err := s.Prune(t.Context(), claim.Forever, 10); n != 1 || err != nil {
				t.Errorf("%d are deleted (%v)", n, err)
			}
			return func(folder string) {
				for _, name := range []string{"", "-wal", "-shm"} {
					if err := os.WriteFile(filepath.Join(folder, historyFile+name), nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "data")
			s, err := replica.OpenWith(folder, replica.Options{PendingBytes: 20_000, Delay: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			dbtest.Do(t, s, claim.Create{ID: "a", Resource: "r", TTL: time.Hour, Value: "first"}, claim.End{ID: "a"})
			kill := forget(t, s, folder)
			dbtest.Do(t, s, claim.Create{ID: "a", Resource: "r", TTL: time.Hour, Value: "second"})
			killed := copyOf(t, folder)
			_ = s.Close() // this one does not count
			kill(killed)
			s = open(t, killed)
			defer func() { _ = s.Close() }()
			once := func(when string) {
				t.Helper()
				claims, _, err := s.List(t.Context(), db.Filter{Resource: new("r")})
				if err != nil || len(claims) != 1 || claims[0].Value != "second" {
					t.Errorf("%s, listed is %+v (%v)", when, claims, err)
				}
			}
			once("when it is opened")
			if err := s.Snapshot(); err != nil {
				t.Fatal(err)
			}
			if found := inspect(killed); found.finds() {
				t.Errorf("the check says %s", found.says())
			}
			dbtest.Do(t, s, claim.End{ID: "a"})
			once("when it has ended")
			if err := s.WriteHistory(); err != nil {
				t.Fatal(err)
			}
			once("in the end")
		})
	}
}

// gaps returns how many gaps a history notes.
func gaps(t *testing.T, file string) (n int) {
	t.Helper()
	conn, err := sqlite.OpenConn(file, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	err = sqlitex.ExecuteTransient(conn, "SELECT count(*) FROM gaps", &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		n = row.ColumnInt(0)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
