package replica_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db/dbtest"
	format "github.com/locket-service/locket/db/dbtest/golden"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/rules/claim"
)

// golden is a folder that this version has written: a log, a snapshot and a history.
const golden = "testdata/folder-1"

// TestGolden: a folder that was written earlier opens with the same state.
func TestGolden(t *testing.T) {
	if _, err := os.Stat(golden); errors.Is(err, fs.ErrNotExist) && format.Update() {
		writeGolden(t)
	}
	opensGolden(t, copyOfGolden(t))
}

func copyOfGolden(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(folder, os.DirFS(golden)); err != nil {
		t.Fatal(err)
	}
	replica.Adopt(t, folder)
	return folder
}

func opensGolden(t *testing.T, folder string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join(folder, "sum"))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, folder)
	defer func() { _ = s.Close() }()
	if got := sum(s); got != strings.TrimSpace(string(want)) {
		t.Errorf("the state has the sum %s, and had %s", got, want)
	}
	for id, status := range map[string]claim.Status{"0": claim.Released, "1": claim.Active, "5": claim.Withdrawn, "bound": claim.Active, "waits": claim.Waiting} {
		if c, _, _, err := s.Get(t.Context(), id, 0); err != nil || c.Status != status {
			t.Errorf("%s is %s (%v), want %s", id, c.Status, err, status)
		}
	}
}

func sum(s *replica.Store) string {
	hash := sha256.Sum256(s.Dump())
	return hex.EncodeToString(hash[:])
}

func writeGolden(t *testing.T) {
	s, err := replica.OpenWith(golden, replica.Options{SegmentBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Register(t.Context(), "here"); err != nil {
		t.Fatal(err)
	}
	for n := range 6 {
		dbtest.Do(t, s, create(n))
	}
	dbtest.Do(t, s, claim.End{ID: "0"},
		claim.Attach{Session: claim.Session{ID: "s", Owner: "o", Secret: []byte("secret"), TTL: time.Hour}, Server: "here"})
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	dbtest.Do(t, s, claim.Create{ID: "bound", Resource: "r", Owner: "o", Session: "s", Server: "here", UserData: []byte("{}")},
		claim.Create{ID: "waits", Resource: "r", Owner: "p", TTL: time.Hour, WaitTTL: time.Minute},
		claim.Renew{ID: "1", TTL: 2 * time.Hour}, claim.SetStatus{ID: "5", Status: claim.Withdrawn, Reason: "why"})
	hash := sum(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(golden, "run")); err != nil { // not of the format
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(golden, "sum"), []byte(hash+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}
