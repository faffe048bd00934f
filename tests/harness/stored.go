package harness

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	_ "github.com/go-sql-driver/mysql" // the driver

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// storedColumns are the columns of a claim that Stored reads. The position is the version that the claim joined the queue at.
const storedColumns = "SELECT id, resource, owner, take, units, session, wait_ttl, status, position, token, version FROM claims"

// Stored returns all claims in the database of a running server. Clients cannot see everything: a claim's enqueue
// version is only in the store.
func Stored(t *testing.T, server *fixtures.Locket) []claim.Claim {
	t.Helper()
	var all []claim.Claim
	var err error
	if engine, source, _ := strings.Cut(server.Database(), ":"); engine == EngineEmbedded {
		all, err = storedInFolder(t, server, source)
	} else {
		all, err = storedInMySQL(source)
	}
	Must(t, err)
	// A store has rows of its own for resources that no client can name.
	return slices.DeleteFunc(all, func(c claim.Claim) bool {
		return !utf8.ValidString(c.Resource) || strings.Contains(c.Resource, "\x00")
	})
}

// storedInFolder reads a copy of the folder of a server, which is paused meanwhile. The copy equals the data of a server that was killed at that
// moment.
func storedInFolder(t *testing.T, server *fixtures.Locket, folder string) (all []claim.Claim, err error) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy")
	Must(t, server.Pause())
	err = CopyFiles(folder, copied)
	Must(t, server.Resume())
	if err != nil {
		return nil, err
	}
	store, err := replica.OpenWith(copied, replica.Options{Copied: true})
	if err != nil {
		return nil, err
	}
	all, _, err = store.List(t.Context(), db.Filter{})
	return all, errors.Join(err, store.Close())
}

// CopyFiles copies the folders and files of a folder over the ones of another folder. It skips sockets.
func CopyFiles(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	})
}

func storedInMySQL(dsn string) (all []claim.Claim, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	rows, err := pool.QueryContext(ctx, storedColumns)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c claim.Claim
		if err := rows.Scan(&c.ID, &c.Resource, &c.Owner, &c.Units.Take, &c.Units.Of, &c.Session, &c.WaitTTL, &c.Status, &c.Enqueued, &c.Token, &c.Version); err != nil {
			return nil, err
		}
		c.WaitTTL *= time.Microsecond
		all = append(all, c)
	}
	return all, rows.Err()
}
