package raft_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/raft"
	"github.com/locket-service/locket/db/raft/disk"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/claim"
)

// TestHistoryThatFails: while the history cannot be written the locks go on, and the log and the warnings say so; it is
// written by itself when it can be.
func TestHistoryThatFails(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	var log fixtures.Buffer
	s, err := raft.OpenWith(folder, raft.Options{Delay: time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
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
		for deadline := time.Now().Add(time.Minute); !is(); {
			time.Sleep(time.Millisecond) // real time: a file is written
			if time.Now().After(deadline) {
				t.Fatalf("not %s: %q; %s", what, s.Warnings(), log.String())
			}
		}
	}
	rename("position", "away")
	if err := errors.Join(do(s, create(1)), do(s, claim.End{ID: "1"})); err != nil {
		t.Fatal(err)
	}
	await("reported", func() bool { return len(s.Warnings()) == 1 && strings.Contains(log.String(), "no such table") })
	if err := errors.Join(do(s, create(2)), do(s, claim.End{ID: "2"})); err != nil {
		t.Errorf("while it fails: %v", err)
	}
	rename("away", "position")
	await("written again", func() bool { return len(s.Warnings()) == 0 && strings.Contains(log.String(), "written again") })
}

// slowDisk is a disk each of whose writes takes as long as a function.
type slowDisk struct {
	disk.Folder
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
	var s *raft.Store
	writes := 0
	snapshots := slowDisk{disk.Folder(t.TempDir()), func() {
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
	s, err = raft.OpenWith(filepath.Join(t.TempDir(), "data"), raft.Options{PendingBytes: 2 * ends * bytes, Snapshots: snapshots})
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
		if c, _, err := s.Get(t.Context(), fmt.Sprint(n)); err != nil || (c.Status == claim.Released) != (n < ends) {
			t.Errorf("claim %d is %v: %v", n, c.Status, err)
		}
	}
}

// TestHistoryKeepsUp: however fast large claims end, the history gets them all: those that end them wait for it, while it is written.
func TestHistoryKeepsUp(t *testing.T) {
	const claims, bytes, atOnce = 200, 60 << 10, 8
	options := small
	options.PendingBytes = 2 * atOnce * bytes
	s, err := raft.OpenWith(filepath.Join(t.TempDir(), "data"), options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for n := range claims {
		if err := do(s, claim.Create{ID: fmt.Sprint(n), Resource: fmt.Sprint("r", n), TTL: time.Hour, Value: strings.Repeat("v", bytes)}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < claims; n += atOnce {
		var ends []claim.Command
		for i := range atOnce {
			ends = append(ends, claim.End{ID: fmt.Sprint(n + i)})
		}
		dbtest.Do(t, s, ends...)
	}
	for n := range claims {
		if c, _, err := s.Get(t.Context(), fmt.Sprint(n)); err != nil || c.Status != claim.Released || len(c.Value) != bytes {
			t.Fatalf("claim %d is %v, with %d bytes: %v", n, c.Status, len(c.Value), err)
		}
	}
	if warnings := s.Warnings(); len(warnings) > 0 {
		t.Error(warnings)
	}
}

// TestPruneBesideHangingDisk: who deletes from the history leaves when its context ends, also while the disk does not answer who writes a
// snapshot, or the history. Else no server with such a disk would end.
func TestPruneBesideHangingDisk(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	begun, gate, first := make(chan struct{}), make(chan struct{}), true
	snapshots := slowDisk{disk.Folder(t.TempDir()), func() {
		if first {
			close(begun)
		}
		first = false
		<-gate
	}}
	s, err := raft.OpenWith(folder, raft.Options{Snapshots: snapshots, Delay: time.Hour}) // the history is not written by itself
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	leaves := func(when string) {
		t.Helper()
		for name, ask := range map[string]func(context.Context) error{
			"Prune":         func(ctx context.Context) error { _, err := s.Prune(ctx, claim.Forever, 10); return err },
			"HistoryCutoff": func(ctx context.Context) error { _, err := s.HistoryCutoff(ctx, 1); return err },
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
			case <-time.After(30 * time.Second):
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
	if n, err := s.Count(t.Context()); err != nil || n != (db.Counts{}) {
		t.Errorf("left are %+v (%v)", n, err)
	}
}
