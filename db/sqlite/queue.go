package sqlite

import (
	"context"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
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

const (
	ownerWaitsSQL = "SELECT " + briefColumns + ` FROM claims INDEXED BY claims_waiter
		WHERE status = 1 AND owner <> '' AND session = '' AND owner = ?` + limitSQL
	sessionWaitsSQL = "SELECT " + briefColumns + ` FROM claims INDEXED BY claims_session
		WHERE status < 3 AND status = 1 AND session <> '' AND session = ?` + limitSQL
)

// WaitsOf implements db.Reader.
func (s *Store) WaitsOf(ctx context.Context, parties []claim.Party, limit int) (waits []claim.Claim, err error) {
	err = s.reading(ctx, func(conn *sqlite.Conn) (err error) {
		defer sqlitex.Transaction(conn)(&err)
		waits, err = readWaits(conn, parties, limit)
		return err
	})
	return waits, err
}

// readWaits reads what parties wait for in the transaction of a connection.
func readWaits(conn *sqlite.Conn, parties []claim.Party, limit int) (waits []claim.Claim, err error) {
	for _, p := range parties {
		if err != nil || len(waits) == limit {
			break
		}
		sql, name := ownerWaitsSQL, p.Owner
		if p.Session != "" {
			sql, name = sessionWaitsSQL, p.Session
		}
		err = each(conn, sql, func(row *sqlite.Stmt) { waits = append(waits, *scan(row)) }, name, limit-len(waits))
	}
	return waits, err
}

// scanRow reads the row of a resource.
func scanRow(stmt *sqlite.Stmt, row *claim.Row) {
	row.Version = uint64(stmt.ColumnInt64(0))
	row.Holder = stmt.ColumnText(1)
	row.Shared = stmt.ColumnInt(2)
	row.Waiting = stmt.ColumnInt(3)
}
