// Package sqlitefile reads the files in which versions of Locket before the raft engine kept everything: a database of SQLite, for one server.
package sqlitefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/internal/claim"
)

// Lock keeps servers of older versions from a file until unlock is called. It returns db.ErrInUse while one uses it.
func Lock(path string) (unlock func(), err error) {
	var locks []*os.File
	release := func() {
		for _, file := range locks {
			_ = file.Close() // nothing was written to it
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	file, err := resolve(path)
	if err != nil {
		return nil, err
	}
	folder, err := resolve(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	// Servers lock the file, and a file beside each of its names. Where locks of both kinds exclude each other, SQLite could not
	// read a file that is locked here.
	names := slices.Compact([]string{file + ".lock", filepath.Join(folder, filepath.Base(path)) + ".lock"})
	if runtime.GOOS == "linux" {
		names = append(names, file)
	}
	for _, name := range names {
		lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		locks = append(locks, lock)
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			if errors.Is(err, syscall.EWOULDBLOCK) {
				err = db.ErrInUse
			}
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
	return release, nil
}

// resolve returns the absolute path without symbolic links.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// Dump gives a sink what a file holds at one moment, also while a server of an older version uses it. It changes nothing. The file
// may be of any version that was ever released.
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

func dump(conn *sqlite.Conn, to backup.Sink) (err error) {
	conn.SetBusyTimeout(5 * time.Second)
	defer sqlitex.Transaction(conn)(&err)
	version, err := schema(conn)
	if err != nil {
		return err
	}
	head, err := readHead(conn)
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
	for _, part := range parts(version, to) {
		if err := sqlitex.ExecuteTransient(conn, part.sql, &sqlitex.ExecOptions{ResultFunc: part.row}); err != nil {
			return err
		}
	}
	return to.End(head)
}

// part is what one statement gives a sink.
type part struct {
	sql string
	row func(*sqlite.Stmt) error
}

// parts are all, in the order that a sink wants. NOT INDEXED because an index of the file might be damaged.
func parts(version int, to backup.Sink) []part {
	claims := "SELECT " + columns(claimColumns, version) + " FROM claims NOT INDEXED WHERE "
	list := []part{
		{claims + "status < 3 ORDER BY id", func(row *sqlite.Stmt) error { return to.Claim(scanClaim(row)) }},
		{"SELECT " + columns(sessionColumns, version) + " FROM sessions ORDER BY id", func(row *sqlite.Stmt) error { return to.Session(scanSession(row)) }},
		{"SELECT name, seen FROM servers ORDER BY name", func(row *sqlite.Stmt) error {
			return to.Server(backup.Server{Name: row.ColumnText(0), Seen: claim.Time(row.ColumnInt64(1))})
		}},
		{"SELECT name, version, holder, shared, waiting FROM resources ORDER BY name", func(row *sqlite.Stmt) error {
			return to.Row(backup.Row{Counted: true, Row: claim.Row{
				Resource: row.ColumnText(0), Version: uint64(row.ColumnInt64(1)), Holder: row.ColumnText(2),
				Shared: row.ColumnInt(3), Waiting: row.ColumnInt(4),
			}})
		}},
		{claims + "status >= 3", func(row *sqlite.Stmt) error { return to.Ended(scanClaim(row)) }},
	}
	if version < sessionsSince {
		list = slices.Delete(list, 1, 3)
	}
	return list
}

// readHead reads what the file says of itself.
func readHead(conn *sqlite.Conn) (head backup.Head, err error) {
	head = backup.Head{Engine: "sqlite", Taken: claim.Time(time.Now().UnixMicro())}
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
