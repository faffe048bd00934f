package backup_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest/golden"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestGolden: a backup that this version has written is read, and written in the same way.
func TestGolden(t *testing.T) {
	const at = 1_790_000_000_000_000
	written, err := backupOf(t, func(to backup.Sink) error {
		head := backup.Head{Engine: "embedded", Taken: at, Lease: at - 1, Floor: at - 2, Quarantine: at - 3}
		return errors.Join(
			to.Begin(head),
			to.Claim(&claim.Claim{ID: "a", Resource: "r", Owner: "o", Status: claim.Active, TTL: time.Hour, Token: at, Version: at + 1, Deadline: at + 2, Created: at - 3}),
			to.Session(&claim.Session{ID: "s", Secret: []byte("secret"), TTL: time.Minute, Server: "here", Attached: at}),
			to.Server(backup.Server{Name: "here", Seen: at}),
			to.Row(backup.Row{Row: claim.Row{Resource: "r", Version: at + 1}}),
			to.Ended(&claim.Claim{ID: "e", Resource: "r", Status: claim.Expired, Version: at, Created: at - 9, Finished: at - 5, Reason: "why"}),
			to.End(head),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, golden.Format{Name: "backup-1", Written: written, Again: func(data []byte) ([]byte, error) {
		path := filepath.Join(t.TempDir(), "golden")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return nil, err
		}
		return backupOf(t, func(to backup.Sink) error { return backup.Read(path, to) })
	}})
}

// backupOf returns the file of a backup.
func backupOf(t *testing.T, from func(backup.Sink) error) ([]byte, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	if err := backup.Write(path, from, func(string) error { return nil }); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
