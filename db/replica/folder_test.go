package replica_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
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
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/rules/claim"
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
	replica.Adopt(t, to)
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

// TestDamagedNode: no bit of the file of the node flips unnoticed, and nobody takes the damaged folder for an empty
// one.
func TestDamagedNode(t *testing.T) {
	folder := used(t)
	file := filepath.Join(folder, "node")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(good) {
		flipped := bytes.Clone(good)
		flipped[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(file, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, string(flipped), folder, file)
		if vacant, err := replica.Vacant(folder); vacant || err == nil || !strings.Contains(err.Error(), file) {
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
	if err := replica.Fill(folder, func(to backup.Sink) error { return replica.Dump(from, to) }); err != nil {
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

// TestLogOfBefore: a log that is older than the history is refused, by the check too.
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

// TestOldHistory: a history that misses claims that the log no longer has is refused.
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
	if err := replica.Dump(folder, k); err != nil {
		t.Fatal(err)
	}
	if k.Found != 0 || k.Active != 3 || k.History != 1 {
		t.Errorf("%d active, %d in the history: %q", k.Active, k.History, k.Problems)
	}
}

// TestDumpByReader: a process that may only read a folder finds out that a server uses it, and reads it again when it
// changes in the meantime.
func TestDumpByReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := copyOf(t, used(t))
		server, err := os.Open(folder)
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
		if err := replica.Dump(folder, k); err != nil || k.Found != 0 || k.Active != 3 {
			t.Errorf("%d active, %q: %v", k.Active, k.Problems, err)
		}
	})
}

func TestAlienFiles(t *testing.T) {
	folder, other := used(t), used(t)
	for _, name := range []string{"log/notes", "snapshots/notes", "snapshots/0000000000000001.snap~"} {
		other := copyOf(t, folder)
		if err := os.WriteFile(filepath.Join(other, name), []byte("notes"), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, "with "+name, other, filepath.Base(name))
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

// TestMovedFolder: a store whose folder was moved acknowledges nothing more, stops, and reports why; everything is
// there when the folder is back. When it closes, it leaves any other folder in that place alone.
func TestMovedFolder(t *testing.T) {
	folder, other := used(t), used(t)
	s := open(t, folder)
	dbtest.Do(t, s, create(99), claim.End{ID: "99"})
	if err := errors.Join(s.WriteHistory(), os.Rename(folder, folder+".moved"), os.Rename(other, folder)); err != nil {
		t.Fatal(err)
	}
	next := openAsCopy(t, folder)
	dbtest.Do(t, next, create(98), claim.End{ID: "98"})
	if err := next.WriteHistory(); err != nil {
		t.Fatal(err)
	}
	if err := do(s, create(100)); !errors.Is(err, db.ErrOutcomeUnknown) {
		t.Errorf("a write after it: %v", err)
	}
	<-s.About().Broken
	if err := s.Failure(); err == nil || !strings.Contains(err.Error(), folder+" was moved") {
		t.Errorf("the failure: %v", err)
	}
	if err := do(s, create(101)); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("one more write: %v", err)
	}
	_ = s.Close() // it may not find its files
	dbtest.Do(t, next, create(97), claim.End{ID: "97"})
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	if found := inspect(folder); found.finds() {
		t.Errorf("what stands in the place of the folder: %s", found.says())
	}
	if err := errors.Join(os.RemoveAll(folder), os.Rename(folder+".moved", folder)); err != nil {
		t.Fatal(err)
	}
	trusts(t, folder)
	s = open(t, folder)
	defer func() { _ = s.Close() }()
	for _, id := range []string{"99", "100"} {
		if _, _, _, err := s.Get(t.Context(), id, 0); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func openAsCopy(t *testing.T, folder string) *replica.Store {
	t.Helper()
	options := small
	options.Copied = true
	s, err := replica.OpenWith(folder, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFolderOfIdleStore: an idle store also finds out that its folder is no longer its own.
func TestFolderOfIdleStore(t *testing.T) {
	for name, do := range map[string]func(folder string) error{
		"moved":           func(folder string) error { return os.Rename(folder, folder+".moved") },
		"deleted":         os.RemoveAll,
		"without its run": func(folder string) error { return os.Remove(filepath.Join(folder, "run")) },
		"without a part of the log": func(folder string) error {
			files, err := filepath.Glob(filepath.Join(folder, "log", "*.log"))
			return errors.Join(err, os.Remove(files[0]))
		},
		"another run's": func(folder string) error {
			text, err := os.ReadFile(filepath.Join(folder, "run"))
			return errors.Join(err, os.WriteFile(filepath.Join(folder, "run"), bytes.Replace(text, []byte("run 2"), []byte("run 3"), 1), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				folder := used(t)
				s := open(t, folder)
				time.Sleep(time.Minute)
				if err := s.Failure(); err != nil {
					t.Errorf("at first: %v", err)
				}
				if err := do(folder); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if err := s.Failure(); err == nil || !strings.Contains(err.Error(), folder) {
					t.Errorf("the failure: %v", err)
				}
				_ = s.Close() // it may not find its files
			})
		})
	}
}

// TestCopiedFolder: a copy is refused, until somebody who knows says that it is the only one. Then nothing is granted for a while, and tokens
// rise above all that the original may have given.
func TestCopiedFolder(t *testing.T) {
	folder := used(t)
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(to, "run")
	for range 2 {
		refused(t, "a copy", to, run)
	}
	if err := os.Remove(run); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := open(t, to)
		distrusts(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	trusts(t, folder)
}

// distrusts fails the test unless a store starts as rolled back.
func distrusts(t *testing.T, s *replica.Store) {
	t.Helper()
	acquire := claim.Acquire{ID: "free", Resource: "free", Owner: "o", TTL: time.Minute}
	if err := do(s, acquire); !errors.Is(err, claim.ErrQuarantine) {
		t.Errorf("a lock is granted: %v", err)
	}
	waits := claim.Create{ID: ids.NewClaim(), Resource: ids.NewClaim(), TTL: time.Minute}
	dbtest.Do(t, s, waits)
	c, _, _, err := s.Get(t.Context(), waits.ID, 0)
	if now := claim.Time(time.Now().UnixMicro()); err != nil || c.Version <= uint64(now) {
		t.Errorf("a new claim has version %d, at %d: %v", c.Version, now, err)
	}
}

// trusts fails the test unless the store in a folder is used as if nothing had happened.
func trusts(t *testing.T, folder string) {
	t.Helper()
	s := open(t, folder)
	defer func() { _ = s.Close() }()
	name := ids.NewClaim()
	if err := do(s, claim.Acquire{ID: name, Resource: name, Owner: "o", TTL: time.Minute}); err != nil {
		t.Error(err)
	}
}

// TestMovedAndCopied: of a folder that was moved while it was not used, a copy in its old place is the same server.
func TestMovedAndCopied(t *testing.T) {
	folder := used(t)
	moved := folder + ".moved"
	if err := os.Rename(folder, moved); err != nil {
		t.Fatal(err)
	}
	trusts(t, moved)
	if err := errors.Join(os.Rename(moved, folder), open(t, folder).Close(), os.Rename(folder, moved), os.CopyFS(folder, os.DirFS(moved))); err != nil {
		t.Fatal(err)
	}
	refused(t, "moved, and left", moved, folder)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	trusts(t, moved)
}

// TestDamagedRun: no bit of the file of the run flips without being noticed.
func TestDamagedRun(t *testing.T) {
	folder := used(t)
	file := filepath.Join(folder, "run")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	put := func(content []byte) { // the file stays the same
		t.Helper()
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for bit := range 8 * len(good) {
		flipped := bytes.Clone(good)
		flipped[bit/8] ^= 1 << (bit % 8)
		put(flipped)
		refused(t, string(flipped), folder, file)
	}
	put(good)
	trusts(t, folder)
}

// TestPrivateFiles: nobody else may read the files of a folder, even if the folder itself and old files are open to all.
func TestPrivateFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var log bytes.Buffer
		options := small
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		s, err := replica.OpenWith(folder, options)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), "0755") {
			t.Errorf("the log does not say that others may look into the folder: %s", log.String())
		}
		name := ids.NewClaim()
		dbtest.Do(t, s, claim.Create{ID: name, Resource: name, TTL: time.Hour}, claim.End{ID: name})
		if err := errors.Join(s.WriteHistory(), s.Snapshot()); err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || path == folder {
				return err
			}
			info, err := e.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %s", path, info.Mode())
			}
			return err
		})
		if err := errors.Join(err, s.Close(), os.Chmod(filepath.Join(folder, "history.db"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInterruptedBegin: a folder that was never ready is set up again.
func TestInterruptedBegin(t *testing.T) {
	folder := used(t)
	text, err := os.ReadFile(filepath.Join(folder, "node"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "node"), replica.WithSum(bytes.Replace(text[:bytes.LastIndex(text, []byte("sum"))], []byte("ready"), []byte("new"), 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, folder)
	defer func() { _ = s.Close() }()
	if _, _, _, err := s.Get(t.Context(), "3", 0); !errors.Is(err, claim.ErrNotFound) {
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
	if vacant, err := replica.Vacant(folder); !vacant || err != nil {
		t.Errorf("vacant: %t (%v)", vacant, err)
	}
	for range 2 {
		if err := open(t, folder).Close(); err != nil {
			t.Error(err)
		}
	}
}
