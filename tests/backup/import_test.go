package backup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/raft"
	"github.com/locket-service/locket/db/sqlitefile"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/server"
	"github.com/locket-service/locket/tests/harness"
)

// After an import of a SQLite file the folder has exactly the contents of the file. Waiting claims keep their order, and
// new tokens are above all earlier ones. The file is kept. A second import changes nothing.
func TestImport(t *testing.T) {
	t.Parallel()
	file, dump := oldFile(t)
	had, checked := read(t, dump), check(t, dump)
	gone := had.ended["gone"] // its row is deleted, and the floor above
	if _, there := had.rows["gone"]; there || gone.Version == 0 || had.head.Floor < gone.Version {
		t.Fatalf("the file has %+v", had)
	}

	folder, imported, err := server.ImportSQLite(file)
	if err != nil || !imported || folder != file+".data" {
		t.Fatal(folder, imported, err)
	}
	into := raftIn(folder)
	has := read(t, into.dump)
	had.head.Engine, had.head.Taken = has.head.Engine, has.head.Taken
	if !reflect.DeepEqual(had, has) {
		t.Errorf("the folder has %+v, and the file %+v", has, had)
	}
	if k := check(t, into.dump); k.Found != 0 || k.State() != checked.State() {
		t.Errorf("the state is %s, and was %s: %v", k.State(), checked.State(), k.Problems)
	}
	if again := check(t, dump); again.State() != checked.State() {
		t.Error("the file has changed")
	}

	r := into.open(t)
	defer func() { must(t, r.Close()) }()
	if c := dbtest.Do(t, r, claim.Acquire{ID: "after", Resource: "gone", Owner: "me", TTL: time.Minute})[0]; c.Token <= gone.Version {
		t.Errorf("the token is %d, and %d was given", c.Token, gone.Version)
	}
	last := had.claims["holds"].Version
	for _, id := range []string{"holds", "waits-1", "waits-2", "waits-3"} {
		c, _, err := r.Get(t.Context(), id)
		must(t, err)
		if c.Status != claim.Active || id != "holds" && c.Token <= last {
			t.Errorf("%s is %v with token %d, after %d", id, c.Status, c.Token, last)
		}
		last = c.Version
		dbtest.Do(t, r, claim.End{ID: id})
	}
	if _, err := r.DetachSilent(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if session, _, err := r.Session(t.Context(), "s1"); err != nil || session.TTL != 20*time.Second {
		t.Errorf("%+v, %v", session, err)
	}
	if _, imported, err := server.ImportSQLite(file); imported || err != nil {
		t.Errorf("it was imported again: %v, %v", imported, err)
	}
}

// Without a file nothing is imported; a file that a server uses is refused.
func TestNothingToImport(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "none.db")
	if folder, imported, err := server.ImportSQLite(file); folder != file+".data" || imported || err != nil {
		t.Error(folder, imported, err)
	}
	file, _ = oldFile(t)
	unlock, err := sqlitefile.Lock(file)
	must(t, err)
	defer unlock()
	if _, imported, err := server.ImportSQLite(file); imported || !errors.Is(err, db.ErrInUse) {
		t.Errorf("a file in use: %v, %v", imported, err)
	}
}

// A file is imported into a folder that is there, and empty: its server does not begin without what the file holds.
func TestImportIntoEmptyFolder(t *testing.T) {
	t.Parallel()
	file, dump := oldFile(t)
	must(t, os.Mkdir(file+".data", 0o700))
	folder, imported, err := server.ImportSQLite(file)
	if err != nil || !imported {
		t.Fatal(imported, err)
	}
	if has, had := check(t, raftIn(folder).dump).State(), check(t, dump).State(); has != had {
		t.Errorf("the state is %s, and was %s", has, had)
	}
}

// importing is set in the process that imports a file, and is killed.
const importing = "LOCKET_TEST_IMPORTING"

func TestImportingProcess(*testing.T) {
	if file := os.Getenv(importing); file != "" {
		if _, _, err := server.ImportSQLite(file); err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		os.Exit(0)
	}
}

// An import that is killed at any moment leaves a folder that holds nothing, or a complete one; the next import succeeds.
func TestKilledImport(t *testing.T) {
	t.Parallel()
	file, dump := oldFile(t)
	want := check(t, dump).State()
	folder := file + ".data"
	there := func() bool {
		vacant, err := raft.Vacant(folder)
		must(t, err)
		return !vacant
	}
	killed := 0
	for range 8 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestImportingProcess$")
		cmd.Env = append(os.Environ(), importing+"="+file)
		must(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		harness.Until(t, "beginning of the import", func() bool { _, err := os.Stat(filepath.Join(folder, "node")); return err == nil })
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // real time: when it is killed
		_ = cmd.Process.Kill()
		<-ended
		if there() {
			break
		}
		if s, err := raft.Open(folder); !errors.Is(err, backup.ErrHalfRestored) {
			t.Fatalf("a server opens what was imported in part: %v, %v", s, err)
		}
		killed++
	}
	if _, _, err := server.ImportSQLite(file); err != nil {
		t.Fatal(err)
	}
	t.Log(killed, "were killed before their end")
	if k := check(t, raftIn(folder).dump); k.Found != 0 || k.State() != want {
		t.Errorf("the state is %s, and was %s: %v", k.State(), want, k.Problems)
	}
}
