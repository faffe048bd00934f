package sqlite

import (
	"context"
	"encoding/json"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

const (
	resourceSQL = "SELECT version, holder, shared, waiting FROM resources WHERE name = ?"

	exclusiveSQL = "SELECT " + briefColumns + " FROM claims WHERE id = ?"
	sharingSQL   = "SELECT " + briefColumns + " FROM claims WHERE resource = ? AND status = 2 AND mode = 1 ORDER BY position" + limitSQL
	waitersSQL   = "SELECT " + briefColumns + " FROM claims WHERE resource = ? AND status = 1 ORDER BY position" + limitSQL
)

// Queue implements db.Reader.
func (s *Store) Queue(ctx context.Context, resource string, limit int) (snapshot db.Snapshot, now claim.Instant, err error) {
	err = s.reading(ctx, func(conn *sqlite.Conn) (err error) {
		defer sqlitex.Transaction(conn)(&err)
		snapshot, err = readQueue(conn, resource, limit)
		return err
	})
	return snapshot, s.instant(), err
}

// readQueue reads a queue in the transaction of a connection.
func readQueue(conn *sqlite.Conn, resource string, limit int) (db.Snapshot, error) {
	snapshot := db.Snapshot{Row: claim.Row{Resource: resource}}
	err := each(conn, resourceSQL, func(row *sqlite.Stmt) { scanRow(row, &snapshot.Row) }, resource)
	add := func(claims *[]claim.Claim, sql string, args ...any) {
		if err == nil {
			err = each(conn, sql, func(row *sqlite.Stmt) { *claims = append(*claims, *scan(row)) }, args...)
		}
	}
	if snapshot.Holder != "" {
		add(&snapshot.Holders, exclusiveSQL, snapshot.Holder)
	}
	if snapshot.Shared > 0 {
		add(&snapshot.Holders, sharingSQL, resource, limit)
	}
	if snapshot.Waiting > 0 {
		add(&snapshot.Waiters, waitersSQL, resource, limit)
	}
	return snapshot, err
}

// The names are one parameter, a list in JSON: a statement for each would cost several times as much.
const (
	ownerWaitsSQL = "SELECT " + briefColumns + ` FROM (SELECT value AS name FROM json_each(?)) names CROSS JOIN claims INDEXED BY claims_waiter
		WHERE status = 1 AND owner <> '' AND session = '' AND owner = name` + limitSQL
	sessionWaitsSQL = "SELECT " + briefColumns + ` FROM (SELECT value AS name FROM json_each(?)) names CROSS JOIN claims INDEXED BY claims_session
		WHERE status < 3 AND status = 1 AND session <> '' AND session = name` + limitSQL
)

// WaitsOf implements db.Reader.
func (s *Store) WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) (waits []claim.Claim, err error) {
	var owned, sessions []string
	for _, p := range owners {
		if p.Session != "" {
			sessions = append(sessions, p.Session)
		} else {
			owned = append(owned, p.Owner)
		}
	}
	err = s.reading(ctx, func(conn *sqlite.Conn) (err error) {
		for _, of := range []struct {
			sql   string
			names []string
		}{{ownerWaitsSQL, owned}, {sessionWaitsSQL, sessions}} {
			if len(of.names) == 0 || err != nil {
				continue
			}
			names, _ := json.Marshal(of.names) // strings can be written
			err = each(conn, of.sql, func(row *sqlite.Stmt) { waits = append(waits, *scan(row)) }, string(names), limit-len(waits))
		}
		return err
	})
	return waits, err
}

// scanRow reads the row of a resource.
func scanRow(stmt *sqlite.Stmt, row *claim.Row) {
	row.Version = uint64(stmt.ColumnInt64(0))
	row.Holder = stmt.ColumnText(1)
	row.Shared = stmt.ColumnInt(2)
	row.Waiting = stmt.ColumnInt(3)
}
