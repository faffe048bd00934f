package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/internal/rules/claim"
)

// dumping is for a connection that reads everything at one moment. The database keeps old versions of rows that change
// in the meantime.
var dumping = role{connections: 1, idle: silence, session: []string{tableWait}, optional: append(noLimits[:len(noLimits):len(noLimits)],
	"SET SESSION net_write_timeout = 600", // the reader may be slow
)}

// configure reads a DSN, as Open does.
func configure(dsn string, options []Option) (*mysql.Config, error) {
	config, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	for _, option := range options {
		if err := option(config); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// Dump gives a sink the contents of a database at one moment, even while servers use it. It changes nothing. The
// database must have the schema of this version.
func Dump(ctx context.Context, dsn string, to backup.Sink, options ...Option) error {
	config, err := configure(dsn, options)
	if err != nil {
		return err
	}
	pool := connect(config, dumping)
	defer func() { _ = pool.Close() }()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return atStart(translate(ctx, err))
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return translate(ctx, err)
		}
	}
	return dump(ctx, conn, to)
}

// notBeats leaves the rows out that beats write.
var notBeats = " NOT IN (" + strings.Join(beatNames, ", ") + ")"

func dump(ctx context.Context, conn *sql.Conn, to backup.Sink) error {
	head, err := dumpedHead(ctx, conn)
	if err != nil {
		return err
	}
	if err := to.Begin(head); err != nil {
		return err
	}
	claims := func(add func(*claim.Claim) error) func(*sql.Rows) error {
		return func(rows *sql.Rows) error {
			c, err := scanClaim(rows)
			if err != nil {
				return err
			}
			return add(&c)
		}
	}
	inOrder := " FROM claims FORCE INDEX (PRIMARY) WHERE id" + notBeats + " AND status"
	for _, part := range []struct {
		query string
		row   func(*sql.Rows) error
	}{
		{"SELECT " + claimColumns + inOrder + " < 3 ORDER BY id", claims(to.Claim)},
		{"SELECT " + sessionColumns + " FROM sessions ORDER BY id", func(rows *sql.Rows) error {
			s, err := scanSession(rows)
			if err != nil {
				return err
			}
			return to.Session(&s)
		}},
		{"SELECT name, seen FROM servers ORDER BY name", func(rows *sql.Rows) error {
			var s backup.Server
			if err := rows.Scan(&s.Name, &s.Seen); err != nil {
				return err
			}
			return to.Server(s)
		}},
		{"SELECT name, version, " + rowColumns + " FROM resources WHERE name" + notBeats + " ORDER BY name", func(rows *sql.Rows) error {
			r := backup.Row{Counted: true}
			if err := rows.Scan(append([]any{&r.Resource, &r.Version}, rowInto(&r.Row)...)...); err != nil {
				return err
			}
			return to.Row(r)
		}},
		{"SELECT " + claimColumns + inOrder + " >= 3", claims(to.Ended)},
	} {
		if err := each(ctx, conn, part.query, nil, part.row); err != nil {
			return err
		}
	}
	if inspector, ok := to.(backup.Inspector); ok {
		if err := inspect(ctx, conn, inspector); err != nil {
			return err
		}
	}
	return to.End(head)
}

// dumpedHead reads the head of a database.
func dumpedHead(ctx context.Context, conn *sql.Conn) (backup.Head, error) {
	files, err := fs.Glob(migrations, "schema/*.sql")
	if err != nil {
		return backup.Head{}, err
	}
	switch at, err := schemaVersion(ctx, conn); {
	case err != nil:
		return backup.Head{}, translate(ctx, err)
	case at == schemaRestoring:
		return backup.Head{}, backup.ErrHalfRestored
	case at > len(files):
		return backup.Head{}, fmt.Errorf("%w: it is at %d, and this locket knows %d", db.ErrNewerSchema, at, len(files))
	case at < len(files):
		return backup.Head{}, fmt.Errorf("the schema is at %d, and this locket reads %d: start a server on the database once", at, len(files))
	}
	m, err := scanMeta(conn.QueryRowContext(ctx, metaSQL))
	if err != nil {
		return backup.Head{}, translate(ctx, err)
	}
	return backup.Head{
		Engine: "mysql", Taken: m.now, Lease: m.clock.Seen.Add(-m.clock.Outage), Floor: m.floor, Quarantine: m.quarantine,
	}, nil
}

// inspect looks whether the tables that stand in for indexes have the rows that they should.
func inspect(ctx context.Context, conn *sql.Conn, to backup.Inspector) error {
	for _, lacks := range []struct{ what, query string }{
		{"the claim %.200q is bound to the session %.200q, and not in session_claims", `SELECT id, claims.session FROM claims FORCE INDEX (PRIMARY)
			LEFT JOIN session_claims s ON s.claim = id AND s.session = claims.session WHERE phase > 0 AND claims.session <> '' AND s.claim IS NULL`},
		{"the claim %.200q of %.200q waits, and is not in owner_waits", `SELECT id, claims.owner FROM claims FORCE INDEX (PRIMARY)
			LEFT JOIN owner_waits w ON w.owner = claims.owner AND w.claim = id WHERE phase = 1 AND claims.owner <> '' AND claims.session = '' AND w.claim IS NULL`},
	} {
		err := each(ctx, conn, lacks.query, nil, func(rows *sql.Rows) error {
			var id, of string
			err := rows.Scan(&id, &of)
			to.Problem(fmt.Sprintf(lacks.what, id, of))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
