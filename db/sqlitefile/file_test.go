package sqlitefile_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/sqlitefile"
	"github.com/locket-service/locket/internal/claim"
)

// contents is a Sink that keeps what it gets.
type contents struct {
	Head     backup.Head
	Claims   []claim.Claim
	Sessions []claim.Session
	Servers  []backup.Server
	Rows     []backup.Row
	History  []claim.Claim
}

func (c *contents) Begin(backup.Head) error        { return nil }
func (c *contents) Claim(x *claim.Claim) error     { c.Claims = append(c.Claims, *x); return nil }
func (c *contents) Session(s *claim.Session) error { c.Sessions = append(c.Sessions, *s); return nil }
func (c *contents) Server(s backup.Server) error   { c.Servers = append(c.Servers, s); return nil }
func (c *contents) Row(r backup.Row) error         { c.Rows = append(c.Rows, r); return nil }
func (c *contents) Ended(x *claim.Claim) error     { c.History = append(c.History, *x); return nil }
func (c *contents) End(h backup.Head) error        { c.Head = h; return nil }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// golden copies the file of a version, which an older Locket has written. That of version 6 was killed: its last commits are in the write-ahead log.
func golden(t *testing.T, version string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "locket.db")
	for _, part := range []string{"", "-wal"} {
		content, err := os.ReadFile("testdata/" + version + ".db" + part)
		if part == "" || err == nil {
			must(t, err)
			must(t, os.WriteFile(file+part, content, 0o600))
		}
	}
	return file
}

// TestGolden: all that the engine of the older versions said of a file is read from it, whatever the version of its schema, and the file stays as it is.
func TestGolden(t *testing.T) {
	for _, version := range []string{"1", "3", "4", "6"} {
		file := golden(t, version)
		before, err := os.ReadFile(file)
		must(t, err)
		text, err := os.ReadFile("testdata/" + version + ".json")
		must(t, err)
		var want, got contents
		must(t, json.Unmarshal(text, &want))
		must(t, sqlitefile.Dump(file, &got))
		if got.Head.Taken == 0 {
			t.Errorf("version %s: it does not say when it was read", version)
		}
		got.Head.Taken = 0
		if !reflect.DeepEqual(got, want) {
			t.Errorf("version %s: got %+v, want %+v", version, got, want)
		}
		if k := backup.NewChecker(); errors.Join(sqlitefile.Dump(file, k)) != nil || k.Found != 0 {
			t.Errorf("version %s: %q", version, k.Problems)
		}
		if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
			t.Errorf("version %s: the file has changed (%v)", version, err)
		}
	}
}

// TestOtherFiles: what is no file of a Locket server, or of a newer one, is refused.
func TestOtherFiles(t *testing.T) {
	file := golden(t, "1")
	version := func(n string) {
		t.Helper()
		conn, err := sqlite.OpenConn(file, sqlite.OpenReadWrite)
		must(t, err)
		must(t, errors.Join(sqlitex.ExecuteTransient(conn, "PRAGMA user_version = "+n, nil), conn.Close()))
	}
	version("7")
	if err := sqlitefile.Dump(file, &contents{}); !errors.Is(err, db.ErrNewerSchema) {
		t.Errorf("a newer one: %v", err)
	}
	version("0")
	if err := sqlitefile.Dump(file, &contents{}); err == nil || !strings.Contains(err.Error(), "not a file of a Locket server") {
		t.Errorf("one of another program: %v", err)
	}
	must(t, os.WriteFile(file, []byte("no database at all"), 0o600))
	if err := sqlitefile.Dump(file, &contents{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("no database: %v", err)
	}
	if err := sqlitefile.Dump(file+".none", &contents{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestLock: a file has one user, whatever it is called, and the lock is what older versions look for.
func TestLock(t *testing.T) {
	file := golden(t, "1")
	link := filepath.Join(t.TempDir(), "link.db")
	must(t, os.Symlink(file, link))
	t.Chdir(filepath.Dir(file))
	for _, first := range []string{file, link, "./locket.db"} {
		unlock, err := sqlitefile.Lock(first)
		must(t, err)
		for _, second := range []string{file, link, "locket.db"} {
			if _, err := sqlitefile.Lock(second); !errors.Is(err, db.ErrInUse) {
				t.Errorf("%s, after %s: %v", second, first, err)
			}
		}
		unlock()
	}
}
