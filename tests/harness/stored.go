package harness

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	_ "github.com/go-sql-driver/mysql" // the driver
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/internal/claim"
)

// storedColumns are what Stored reads of a claim. Its position is the version with which it joined the queue.
const storedColumns = "SELECT id, resource, owner, mode, session, wait_ttl, status, position, token, version FROM claims"

// Stored returns all claims as a database has them, which a server may be using. Clients cannot see
// everything that there is: with which version a claim joined its queue is known to the store alone.
func Stored(t *testing.T, database string) []claim.Claim {
	t.Helper()
	var all []claim.Claim
	var err error
	if file, ok := strings.CutPrefix(database, "sqlite:"); ok {
		all, err = storedInSQLite(file)
	} else {
		all, err = storedInMySQL(strings.TrimPrefix(database, "mysql:"))
	}
	Must(t, err)
	// A store has rows of its own, of resources that no client can name.
	return slices.DeleteFunc(all, func(c claim.Claim) bool { return !utf8.ValidString(c.Resource) })
}

func storedInSQLite(file string) (all []claim.Claim, err error) {
	conn, err := sqlite.OpenConn(file, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetBlockOnBusy()
	err = sqlitex.ExecuteTransient(conn, storedColumns, &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		all = append(all, claim.Claim{
			ID: row.ColumnText(0), Resource: row.ColumnText(1), Owner: row.ColumnText(2), Mode: claim.Mode(row.ColumnInt(3)),
			Session: row.ColumnText(4), WaitTTL: time.Duration(row.ColumnInt64(5)) * time.Microsecond,
			Status: claim.Status(row.ColumnInt(6)), Enqueued: uint64(row.ColumnInt64(7)), Token: uint64(row.ColumnInt64(8)), Version: uint64(row.ColumnInt64(9)),
		})
		return nil
	}})
	return all, err
}

func storedInMySQL(dsn string) (all []claim.Claim, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, storedColumns)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c claim.Claim
		if err := rows.Scan(&c.ID, &c.Resource, &c.Owner, &c.Mode, &c.Session, &c.WaitTTL, &c.Status, &c.Enqueued, &c.Token, &c.Version); err != nil {
			return nil, err
		}
		c.WaitTTL *= time.Microsecond
		all = append(all, c)
	}
	return all, rows.Err()
}
