package sqlite_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/sqlite"
	"github.com/locket-service/locket/internal/claim"
)

// names returns the ways to name one database, which is not there yet.
func names(t *testing.T, folder string) map[string]string {
	t.Helper()
	path := filepath.Join(folder, "locket.db")
	link, linked := filepath.Join(folder, "link.db"), filepath.Join(t.TempDir(), "folder")
	check(t, os.Symlink("locket.db", link), os.Symlink(folder, linked))
	return map[string]string{
		"its path": path, "a symbolic link": link, "a linked folder": filepath.Join(linked, "locket.db"),
		"another path": filepath.Join(folder, "..", filepath.Base(folder), "locket.db"),
	}
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestOneServerWhateverTheName: a database has one server, by whatever names it is opened, and also
// after its lock file was deleted.
func TestOneServerWhateverTheName(t *testing.T) {
	for first := range names(t, t.TempDir()) {
		t.Run(first, func(t *testing.T) {
			folder := t.TempDir()
			others := names(t, folder)
			s := open(t, others[first])
			hard := filepath.Join(t.TempDir(), "hard.db")
			check(t, os.Link(filepath.Join(folder, "locket.db"), hard))
			others["a hard link"] = hard
			locks, err := filepath.Glob(filepath.Join(folder, "*.lock"))
			check(t, err)
			for range 2 {
				for second, path := range others {
					if _, err := sqlite.Open(path); !errors.Is(err, db.ErrInUse) {
						t.Errorf("opened by %s as well: %v", second, err)
					}
					if err := openElsewhere(t, path); err == nil {
						t.Errorf("another process has opened it by %s", second)
					}
				}
				for _, lock := range locks {
					check(t, os.RemoveAll(lock))
				}
			}
			dbtest.Do(t, s, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour})
			check(t, s.Close())
			again := open(t, others["its path"])
			if c, err := again.Holder(t.Context(), "r"); err != nil || c.ID != "a" {
				t.Errorf("holder %q (%v)", c.ID, err)
			}
			check(t, again.Close())
			for name, path := range others {
				if name != "a hard link" { // it has another write-ahead log
					check(t, openElsewhere(t, path))
				}
			}
		})
	}
}

// elsewhere is the variable that makes this test program open a database and end.
const elsewhere = "LOCKET_TEST_OPEN"

func TestMain(m *testing.M) {
	path := os.Getenv(elsewhere)
	if path == "" {
		os.Exit(m.Run())
	}
	if _, err := sqlite.Open(path); err != nil {
		os.Exit(1)
	}
}

// openElsewhere opens a database in another process, which ends at once.
func openElsewhere(t *testing.T, path string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), elsewhere+"="+path, "GORACE=atexit_sleep_ms=0")
	return cmd.Run()
}

// TestOlderServer: a server that knows only the lock file excludes this one, and the other way
// round, by the path of the file and by the name that both were given.
func TestOlderServer(t *testing.T) {
	for _, name := range []string{"locket.db", "link.db"} {
		folder := t.TempDir()
		path := filepath.Join(folder, name)
		check(t, os.Symlink("locket.db", filepath.Join(folder, "link.db")))
		older := flock(t, path)
		if older == nil {
			t.Fatal("nobody has the lock, and it cannot be had")
		}
		if _, err := sqlite.Open(path); !errors.Is(err, db.ErrInUse) {
			t.Errorf("opened beside an older server: %v", err)
		}
		check(t, older.Close())
		s := open(t, path)
		if older := flock(t, path); older != nil {
			t.Error("an older server can lock what is in use")
		}
		check(t, s.Close())
	}
}

// TestReplaced: when the file, or its log, is no longer where it was, the server takes nothing
// more, and says why; when it is back, it goes on.
func TestReplaced(t *testing.T) {
	for _, part := range []string{"", "-wal"} {
		for how, replace := range map[string]func(path string) error{
			"moved":    func(string) error { return nil },
			"replaced": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		} {
			t.Run(how+part, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "locket.db")
				s := open(t, path)
				defer func() { check(t, s.Close()) }()
				dbtest.Do(t, s, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour})
				check(t, os.Rename(path+part, path+".away"), replace(path+part))
				for name, use := range map[string]func() error{
					"a transaction": func() error { return s.Update(t.Context(), func(db.Tx) error { return nil }) },
					"a beat":        func() error { return s.Beat(t.Context()) },
					"pruning":       func() error { _, err := s.Prune(t.Context(), 1, 1); return err },
					"a read":        func() error { _, _, err := s.Get(t.Context(), "a"); return err },
				} {
					if err := use(); !errors.Is(err, db.ErrUnavailable) {
						t.Errorf("%s: %v", name, err)
					}
				}
				check(t, os.Rename(path+".away", path+part))
				dbtest.Do(t, s, claim.Acquire{ID: "b", Resource: "r2", Owner: "o", TTL: time.Hour})
			})
		}
	}
}

// TestFileModes: nobody else may read what the server stores.
func TestFileModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locket.db")
	s := open(t, path)
	defer func() { check(t, s.Close()) }()
	dbtest.Do(t, s, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour})
	for _, part := range []string{"", "-wal", "-shm", ".lock"} {
		info, err := os.Stat(path + part)
		check(t, err)
		if info.Mode() != 0o600 {
			t.Errorf("locket.db%s is %s", part, info.Mode())
		}
	}
}

// flock locks the lock file of a path as older servers did; nil when somebody has it.
func flock(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	check(t, err)
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		check(t, file.Close())
		return nil
	}
	return file
}
