package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/internal/claim"
)

// Dump gives a sink what a file holds at one moment, also while a server uses the file. It changes nothing. The file must be of the
// schema of this version.
func Dump(path string, to backup.Sink) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = conn.Close() }()
	if err := dump(conn, to); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Dump gives a sink what the store holds.
func (s *Store) Dump(to backup.Sink) error {
	if err := s.file.check(); err != nil {
		return err
	}
	return dump(s.conn, to)
}

func dump(conn *sqlite.Conn, to backup.Sink) (err error) {
	conn.SetBusyTimeout(5 * time.Second)
	defer sqlitex.Transaction(conn)(&err)
	head, err := dumpedHead(conn)
	if err != nil {
		return err
	}
	if inspector, ok := to.(backup.Inspector); ok {
		if err := inspect(conn, inspector); err != nil {
			return err
		}
	}
	if err := to.Begin(head); err != nil {
		return err
	}
	const inOrder = " NOT INDEXED WHERE "
	for _, part := range []struct {
		sql string
		row func(*sqlite.Stmt) error
	}{
		{"SELECT " + claimColumns + " FROM claims" + inOrder + "status < 3 ORDER BY id", func(row *sqlite.Stmt) error { return to.Claim(scan(row)) }},
		{"SELECT " + sessionColumns + " FROM sessions ORDER BY id", func(row *sqlite.Stmt) error {
			s := scanSession(row)
			return to.Session(&s)
		}},
		{"SELECT name, seen FROM servers ORDER BY name", func(row *sqlite.Stmt) error {
			return to.Server(backup.Server{Name: row.ColumnText(0), Seen: claim.Time(row.ColumnInt64(1))})
		}},
		{"SELECT name, version, holder, shared, waiting FROM resources ORDER BY name", func(row *sqlite.Stmt) error {
			return to.Row(backup.Row{Counted: true, Row: claim.Row{
				Resource: row.ColumnText(0), Version: uint64(row.ColumnInt64(1)), Holder: row.ColumnText(2),
				Shared: row.ColumnInt(3), Waiting: row.ColumnInt(4),
			}})
		}},
		{"SELECT " + claimColumns + " FROM claims" + inOrder + "status >= 3", func(row *sqlite.Stmt) error { return to.Ended(scan(row)) }},
	} {
		if err := sqlitex.ExecuteTransient(conn, part.sql, &sqlitex.ExecOptions{ResultFunc: part.row}); err != nil {
			return err
		}
	}
	return to.End(head)
}

// dumpedHead reads what the file says of itself.
func dumpedHead(conn *sqlite.Conn) (head backup.Head, err error) {
	files, err := fs.Glob(migrations, "schema/*.sql")
	if err != nil {
		return head, err
	}
	var at int
	err = sqlitex.ExecuteTransient(conn, "PRAGMA user_version", &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		at = row.ColumnInt(0)
		return nil
	}})
	switch {
	case err != nil:
		return head, err
	case at > len(files):
		return head, fmt.Errorf("%w: it is at %d, and this locket knows %d", db.ErrNewerSchema, at, len(files))
	case at == 0:
		return head, errors.New("it is not a file of a Locket server")
	case at < len(files):
		return head, errors.New("it is of an older version: start its server once with this one")
	}
	head = backup.Head{Engine: "sqlite", Taken: wallTime()}
	err = sqlitex.ExecuteTransient(conn, "SELECT seen, outage, floor FROM meta", &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		seen, outage := claim.Time(row.ColumnInt64(0)), time.Duration(row.ColumnInt64(1))*time.Microsecond
		head.Lease, head.Floor = seen.Add(-outage), uint64(row.ColumnInt64(2))
		return nil
	}})
	return head, err
}

// inspect looks for pages and indexes that are damaged.
func inspect(conn *sqlite.Conn, to backup.Inspector) error {
	return sqlitex.ExecuteTransient(conn, "PRAGMA integrity_check", &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		if text := row.ColumnText(0); text != "ok" {
			to.Problem("the file: " + text)
		}
		return nil
	}})
}
