package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/internal/claim"
)

const claimColumns = "id, resource, owner, mode, type, ttl, user_data, value, status, position, token, version, deadline, created, activated, finished, reason, session, wait_ttl, identity, ended_by"

// briefColumns are claimColumns without what may be large.
const briefColumns = "id, resource, owner, mode, type, ttl, NULL, '', status, position, token, version, deadline, created, activated, finished, reason, session, wait_ttl, identity, ended_by"

// shortColumns are claimColumns without what is longer than claim.MaxBrief, and whether there is such: see scanShort.
// octet_length does not read what it measures.
var shortColumns = strings.Replace(briefColumns, "NULL, ''", fmt.Sprintf(`CASE WHEN octet_length(user_data) <= %[1]d THEN user_data END,
	CASE WHEN octet_length(value) <= %[1]d THEN value ELSE '' END`, claim.MaxBrief), 1) +
	fmt.Sprintf(", octet_length(value) > %[1]d OR coalesce(octet_length(user_data) > %[1]d, 0)", claim.MaxBrief)

// limitSQL limits a statement that is kept. SQLite plans a statement anew at each bind of a bare
// parameter of LIMIT, because the plan might depend on it; that costs more than the statement.
const limitSQL = " LIMIT ?+0"

// statements are those of the writing connection, prepared once.
type statements struct {
	begin, commit, rollback                 *sqlite.Stmt
	resource, claim, shortClaim             *sqlite.Stmt
	waiting, sharedDue                      *sqlite.Stmt
	insertResource, updateResource          *sqlite.Stmt
	insertClaim, updateClaim, endClaim      *sqlite.Stmt
	updateValue                             *sqlite.Stmt
	saveClock, saveSeen                     *sqlite.Stmt
	touchResources, touchClaims             *sqlite.Stmt
	session, sessionClaims, sessionWaits    *sqlite.Stmt
	countOf, insertOf, forgetOf, pruneOf    *sqlite.Stmt
	insertSession, updateSession            *sqlite.Stmt
	deleteSession                           *sqlite.Stmt
	register, deleteServer, detach          *sqlite.Stmt
	prune, walk, deleteResource, raiseFloor *sqlite.Stmt
	all                                     []*sqlite.Stmt
}

func prepareStatements(conn *sqlite.Conn) (*statements, error) {
	w := &statements{}
	for _, s := range []struct {
		stmt **sqlite.Stmt
		sql  string
	}{
		{&w.begin, "BEGIN IMMEDIATE"},
		{&w.commit, "COMMIT"},
		{&w.rollback, "ROLLBACK"},
		{&w.resource, resourceSQL},
		{&w.claim, "SELECT " + claimColumns + " FROM claims WHERE id = ?"},
		{&w.shortClaim, "SELECT " + shortColumns + " FROM claims WHERE id = ?"},
		{&w.waiting, "SELECT " + shortColumns + " FROM claims WHERE resource = ? AND status = 1 AND position > ? ORDER BY position" + limitSQL},
		{&w.sharedDue, "SELECT " + shortColumns + " FROM claims WHERE resource = ? AND status = 2 AND mode = 1 AND deadline <= ? ORDER BY deadline" + limitSQL},
		{&w.insertResource, "INSERT INTO resources (version, holder, shared, waiting, name) VALUES (?, ?, ?, ?, ?)"},
		{&w.updateResource, "UPDATE resources SET version = ?, holder = ?, shared = ?, waiting = ? WHERE name = ?"},
		{&w.insertClaim, "INSERT INTO claims (" + claimColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
		{&w.updateClaim, "UPDATE claims SET type = ?, ttl = ?, status = ?, token = ?, version = ?, deadline = ?, activated = ?, finished = ?, reason = ?, ended_by = ? WHERE id = ?"},
		{&w.updateValue, "UPDATE claims SET value = ? WHERE id = ?"},
		{&w.endClaim, "UPDATE claims SET status = ?, version = ?, finished = ?, reason = ?, ended_by = ? WHERE id = ?"},
		{&w.touchResources, "UPDATE resources SET version = version WHERE name = ''"},
		{&w.touchClaims, "UPDATE claims SET version = version WHERE id = ''"},
		{&w.saveClock, "UPDATE meta SET seen = ?, outage = ?"},
		{&w.saveSeen, "UPDATE servers SET seen = ? WHERE name = ?"},
		{&w.session, sessionSQL},
		{&w.sessionClaims, endsSQL + " ORDER BY status" + limitSQL},
		{&w.sessionWaits, endsSQL + " AND status = 1" + limitSQL},
		{&w.countOf, countOfSQL},
		{&w.insertOf, "INSERT OR IGNORE INTO identity_claims (identity, claim) VALUES (?, ?)"},
		{&w.forgetOf, forgetOfSQL},
		{&w.pruneOf, pruneOfSQL},
		{&w.insertSession, "INSERT INTO sessions (owner, secret, ttl, server, attached, deadline, created, version, identity, ending_active, ending_waiting, ending_reason, ended_by, id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
		{&w.updateSession, "UPDATE sessions SET owner = ?, secret = ?, ttl = ?, server = ?, attached = ?, deadline = ?, created = ?, version = ?, identity = ?, ending_active = ?, ending_waiting = ?, ending_reason = ?, ended_by = ? WHERE id = ?"},
		{&w.deleteSession, "DELETE FROM sessions WHERE id = ?"},
		{&w.register, "INSERT INTO servers (name, seen) VALUES (?, ?)"},
		{&w.deleteServer, "DELETE FROM servers WHERE name = ?"},
		{&w.detach, "UPDATE sessions SET server = '', attached = 0, deadline = max(attached, ?) + ttl, version = version + 1 WHERE server = ?"},
		{&w.prune, "DELETE FROM claims WHERE id IN (SELECT id FROM claims WHERE status > 2 AND finished < ? ORDER BY finished" + limitSQL + ")"},
		{&w.walk, "SELECT name, version, holder = '' AND shared = 0 AND waiting = 0 FROM resources WHERE name > ? ORDER BY name" + limitSQL},
		{&w.deleteResource, "DELETE FROM resources WHERE name = ?"},
		{&w.raiseFloor, "UPDATE meta SET floor = max(floor, ?)"},
	} {
		stmt, err := conn.Prepare(s.sql)
		if err != nil {
			return nil, fmt.Errorf("prepare %q: %w", s.sql, err)
		}
		*s.stmt = stmt
		w.all = append(w.all, stmt)
	}
	return w, nil
}

func (w *statements) finalize() error {
	var errs []error
	for _, stmt := range w.all {
		errs = append(errs, stmt.Finalize())
	}
	return errors.Join(errs...)
}

// bind sets the parameters of a statement: int64, int, string, []byte, or nil for NULL.
func bind(stmt *sqlite.Stmt, args ...any) {
	for i, arg := range args {
		switch v := arg.(type) {
		case int64:
			stmt.BindInt64(i+1, v)
		case int:
			stmt.BindInt64(i+1, int64(v))
		case uint8:
			stmt.BindInt64(i+1, int64(v))
		case string:
			stmt.BindText(i+1, v)
		case []byte:
			stmt.BindBytes(i+1, v)
		case nil:
			stmt.BindNull(i + 1)
		default:
			panic(fmt.Sprintf("sqlite: cannot bind %T", arg))
		}
	}
}

// run carries out a statement that returns no rows.
func run(stmt *sqlite.Stmt, args ...any) error {
	bind(stmt, args...)
	_, err := stmt.Step()
	return errors.Join(err, resetAfter(stmt, err))
}

// resetAfter makes a statement ready for its next use. Resetting repeats the error of the
// last step, which has been seen by then.
func resetAfter(stmt *sqlite.Stmt, seen error) error {
	if err := stmt.Reset(); seen == nil {
		return err
	}
	return nil
}

// query runs a statement and calls row for each of its rows.
func query(stmt *sqlite.Stmt, row func(), args ...any) error {
	return queryUntil(stmt, func() bool { row(); return true }, args...)
}

// queryUntil is query, except that it ends after a row for which row returns false.
func queryUntil(stmt *sqlite.Stmt, row func() (more bool), args ...any) error {
	bind(stmt, args...)
	for {
		more, err := stmt.Step()
		if err != nil || !more || !row() {
			return errors.Join(err, resetAfter(stmt, err))
		}
	}
}

// scan reads a claim from a row of claimColumns.
func scan(row *sqlite.Stmt) *claim.Claim {
	c := &claim.Claim{
		ID:        row.ColumnText(0),
		Resource:  row.ColumnText(1),
		Owner:     row.ColumnText(2),
		Mode:      claim.Mode(row.ColumnInt64(3)),
		Type:      claim.Type(row.ColumnInt64(4)),
		TTL:       time.Duration(row.ColumnInt64(5)) * time.Microsecond,
		Value:     row.ColumnText(7),
		Status:    claim.Status(row.ColumnInt64(8)),
		Enqueued:  uint64(row.ColumnInt64(9)),
		Token:     uint64(row.ColumnInt64(10)),
		Version:   uint64(row.ColumnInt64(11)),
		Deadline:  claim.Time(row.ColumnInt64(12)),
		Created:   claim.Time(row.ColumnInt64(13)),
		Activated: claim.Time(row.ColumnInt64(14)),
		Finished:  claim.Time(row.ColumnInt64(15)),
		Reason:    row.ColumnText(16),
		Session:   row.ColumnText(17),
		WaitTTL:   time.Duration(row.ColumnInt64(18)) * time.Microsecond,
		Identity:  row.ColumnText(19),
		EndedBy:   row.ColumnText(20),
	}
	if !row.ColumnIsNull(6) {
		c.UserData = []byte(row.ColumnText(6))
	}
	return c
}

// scanShort reads a claim from a row of shortColumns.
func scanShort(row *sqlite.Stmt) *claim.Claim {
	c := scan(row)
	c.Brief = row.ColumnBool(row.ColumnCount() - 1)
	return c
}
