package raft_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/raft"
	"github.com/locket-service/locket/internal/claim"
)

// used returns a folder with everything that a server may have there: a log that has rotated, a snapshot, and a history.
func used(t testing.TB) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "data")
	s := open(t, folder)
	for n := range 3 {
		large := create(n)
		large.Value = strings.Repeat("v", small.SegmentBytes)
		dbtest.Do(t, s, large, claim.SetStatus{ID: "0", Status: claim.Released})
		if err := s.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	dbtest.Do(t, s, create(3))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return folder
}

// copyOf returns a copy of a folder, which may be used as if it were the folder.
func copyOf(t testing.TB, folder string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(to, "place")); err != nil {
		t.Fatal(err)
	}
	return to
}

// refused opens a folder that must be refused, with the name of a file.
func refused(t testing.TB, what, folder, file string) {
	t.Helper()
	s, err := openSmall(folder)
	if err == nil {
		_ = s.Close()
		t.Errorf("%s: it was opened", what)
	} else if !strings.Contains(err.Error(), file) {
		t.Errorf("%s: %s is not named: %v", what, file, err)
	}
}

func TestMissingFiles(t *testing.T) {
	folder := used(t)
	for _, name := range []string{"node", "log/end", "log/*.log", "snapshots/*.snap", "history.db"} {
		damaged := copyOf(t, folder)
		files, err := filepath.Glob(filepath.Join(damaged, name))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q (%v)", name, files, err)
		}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		in, _, _ := strings.Cut(name, "*")
		refused(t, "without "+name, damaged, strings.TrimSuffix(in, "/"))
	}
}

// TestDamagedNode: a bit that has flipped in the state of a folder makes nobody take it for an empty one.
func TestDamagedNode(t *testing.T) {
	folder := used(t)
	file := filepath.Join(folder, "node")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(good, []byte("ready"))
	for bit := 8 * begin; bit < 8*(begin+len("ready")); bit++ {
		flipped := bytes.Clone(good)
		flipped[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(file, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, string(flipped), folder, file)
		if vacant, err := raft.Vacant(folder); vacant || err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: vacant: %t (%v)", flipped, vacant, err)
		}
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if found := inspect(folder); found.finds() || found.Active != 3 {
		t.Errorf("%d claims are left: %s", found.Active, found.says())
	}
}

// TestMissingSnapshotOfFilledFolder: what a restore or an import has put there is all in a snapshot.
func TestMissingSnapshotOfFilledFolder(t *testing.T) {
	from, folder := used(t), filepath.Join(t.TempDir(), "filled")
	if err := raft.Fill(folder, func(to backup.Sink) error { return raft.Dump(from, to) }); err != nil {
		t.Fatal(err)
	}
	if found := inspect(folder); found.finds() || found.Active != 3 {
		t.Errorf("%d claims are there: %s", found.Active, found.says())
	}
	files, err := filepath.Glob(filepath.Join(folder, "snapshots", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q (%v)", files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if found := inspect(folder); !found.finds() {
		t.Errorf("%d claims are there, and the check says nothing", found.Active)
	}
	refused(t, "without its snapshot", folder, "snapshots")
}

// TestLogOfBefore: a log that lacks what the history has is refused, by the check too.
func TestLogOfBefore(t *testing.T) {
	folder := used(t)
	before := filepath.Join(copyOf(t, folder), "log")
	s := open(t, folder)
	dbtest.Do(t, s, create(4), claim.End{ID: "4"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(folder, "log")), os.Rename(before, filepath.Join(folder, "log"))); err != nil {
		t.Fatal(err)
	}
	if found := inspect(folder); !strings.Contains(found.says(), "was longer") {
		t.Errorf("the check says %s", found.says())
	}
	refused(t, "a log of before", folder, "log")
}

// TestOldHistory: a history that lacks what the log no longer has is refused.
func TestOldHistory(t *testing.T) {
	folder := used(t)
	file := filepath.Join(folder, "history.db")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, folder)
	dbtest.Do(t, s, claim.End{ID: "3"})
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, before, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "a history of before", folder, file)
}

// TestDumpOfReadOnlyFolder: a folder is read where SQLite cannot make the files that it wants beside its own.
func TestDumpOfReadOnlyFolder(t *testing.T) {
	folder := used(t)
	// It leads nowhere, so that the file cannot be made, by any user, as on a file system that is only read.
	if err := os.Symlink(filepath.Join(folder, "none", "shm"), filepath.Join(folder, "history.db-shm")); err != nil {
		t.Fatal(err)
	}
	k := backup.NewChecker()
	if err := raft.Dump(folder, k); err != nil {
		t.Fatal(err)
	}
	if k.Found != 0 || k.Active != 3 || k.History != 1 {
		t.Errorf("%d active, %d in the history: %q", k.Active, k.History, k.Problems)
	}
}

// TestDumpByReader: who may only read a folder finds out that a server uses it, and reads it again when it changes meanwhile.
func TestDumpByReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := copyOf(t, used(t))
		lock := filepath.Join(folder, "lock")
		if err := errors.Join(os.Remove(lock), os.Mkdir(lock, 0o700)); err != nil { // nobody, whatever user, may open it to write
			t.Fatal(err)
		}
		server, err := os.Open(lock)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = server.Close() }()
		if err := syscall.Flock(int(server.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		snapshots := filepath.Join(folder, "snapshots")
		if err := os.Rename(snapshots, snapshots+".new"); err != nil {
			t.Fatal(err)
		}
		var changing sync.WaitGroup
		changing.Go(func() {
			time.Sleep(time.Second)
			if err := os.Rename(snapshots+".new", snapshots); err != nil {
				t.Error(err)
			}
		})
		defer changing.Wait()
		k := backup.NewChecker()
		if err := raft.Dump(folder, k); err != nil || k.Found != 0 || k.Active != 3 {
			t.Errorf("%d active, %q: %v", k.Active, k.Problems, err)
		}
	})
}

func TestAlienFiles(t *testing.T) {
	folder, other := used(t), used(t)
	for _, name := range []string{"log/notes", "snapshots/notes", "snapshots/0000000000000001.snap~"} {
		alien := copyOf(t, folder)
		if err := os.WriteFile(filepath.Join(alien, name), []byte("notes"), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, "with "+name, alien, filepath.Base(name))
	}
	for _, name := range []string{"log", "snapshots", "history.db"} { // of another server
		mixed := copyOf(t, folder)
		if err := os.RemoveAll(filepath.Join(mixed, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(copyOf(t, other), name), filepath.Join(mixed, name)); err != nil {
			t.Fatal(err)
		}
		refused(t, name+" of another server", mixed, name)
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "letter"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "a folder with other things", home, "letter")
	file := filepath.Join(home, "letter")
	if _, err := openSmall(file); err == nil {
		t.Error("a file was opened")
	}
}

// TestMovedFolder: a store whose folder was moved stops, and says so; all is there when it is back.
func TestMovedFolder(t *testing.T) {
	folder := used(t)
	s := open(t, folder)
	if err := os.Rename(folder, folder+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := do(s, create(100)); err != nil {
		t.Fatal(err)
	}
	<-s.Broken()
	if err := s.Failure(); err == nil || !strings.Contains(err.Error(), folder+" was moved") {
		t.Errorf("the failure: %v", err)
	}
	if err := do(s, create(101)); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("a write after it: %v", err)
	}
	_ = s.Close() // it may not find its files
	if err := os.Rename(folder+".moved", folder); err != nil {
		t.Fatal(err)
	}
	s = open(t, folder)
	defer func() { _ = s.Close() }()
	if _, _, err := s.Get(t.Context(), "100"); err != nil {
		t.Errorf("what was acknowledged: %v", err)
	}
}

// TestCopiedFolder: a copy is refused, until somebody who knows says that it is the only one.
func TestCopiedFolder(t *testing.T) {
	folder := used(t)
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(to, "place")
	for range 2 {
		refused(t, "a copy", to, place)
	}
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := open(t, to).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(t, folder).Close(); err != nil {
		t.Error(err)
	}
}

// TestInterruptedBegin: a folder that was never ready is begun anew.
func TestInterruptedBegin(t *testing.T) {
	folder := used(t)
	text, err := os.ReadFile(filepath.Join(folder, "node"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "node"), bytes.Replace(text, []byte("ready"), []byte("new"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, folder)
	defer func() { _ = s.Close() }()
	if _, _, err := s.Get(t.Context(), "3"); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("a claim of before: %v", err)
	}
	dbtest.Do(t, s, create(3))
}

// TestFlippedBits: no bit of a snapshot changes without being noticed.
func TestFlippedBits(t *testing.T) {
	folder := copyOf(t, used(t))
	if err := open(t, folder).Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "snapshots", "*.snap"))
	if err != nil || len(files) != 1 {
		t.Fatalf("snapshots %q (%v)", files, err)
	}
	good, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for bit := 0; bit < 8*len(good); bit += 1 + len(good)/flips {
		flipped := bytes.Clone(good)
		flipped[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(files[0], flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, "a flipped bit", folder, files[0])
	}
	for _, n := range []int{0, 10, len(good) / 2, len(good) - 8, len(good) - 1} {
		if err := os.WriteFile(files[0], good[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, "a part of a snapshot", folder, files[0])
	}
}

// TestInterruptedNode: a first start that was killed while it wrote who the node is leaves a folder that can be used.
func TestInterruptedNode(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "node.new"), []byte("locket"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, folder).Close(); err != nil {
		t.Error(err)
	}
}

// TestMountPoint: what a file system puts into its own folder keeps no server from that.
func TestMountPoint(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(folder, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	if vacant, err := raft.Vacant(folder); !vacant || err != nil {
		t.Errorf("vacant: %t (%v)", vacant, err)
	}
	for range 2 {
		if err := open(t, folder).Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestInterruptedPlace: a start that was interrupted, or found the disk full, while it wrote which file the one of the place is, leaves a folder
// that can be used.
func TestInterruptedPlace(t *testing.T) {
	folder := used(t)
	if err := os.Truncate(filepath.Join(folder, "place"), 0); err != nil {
		t.Fatal(err)
	}
	if err := open(t, folder).Close(); err != nil {
		t.Error(err)
	}
}
