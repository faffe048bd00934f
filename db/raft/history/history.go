// Package history is the file in which a node keeps the claims that have ended. It is filled behind the commits, in
// large transactions, each of which says up to which entry of the log the file has everything.
package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/internal/claim"
)

// version is that of the schema.
const version = 1

const schema = `
CREATE TABLE claims (
	entry     INTEGER NOT NULL, -- of the log, in which the claim ended
	id        TEXT    NOT NULL,
	resource  TEXT    NOT NULL,
	owner     TEXT    NOT NULL,
	mode      INTEGER NOT NULL,
	type      INTEGER NOT NULL,
	ttl       INTEGER NOT NULL, -- durations in nanoseconds, times in microseconds
	user_data BLOB,
	value     TEXT    NOT NULL,
	status    INTEGER NOT NULL,
	enqueued  INTEGER NOT NULL,
	token     INTEGER NOT NULL,
	version   INTEGER NOT NULL,
	deadline  INTEGER NOT NULL,
	created   INTEGER NOT NULL,
	activated INTEGER NOT NULL,
	finished  INTEGER NOT NULL,
	reason    TEXT    NOT NULL,
	session   TEXT    NOT NULL,
	wait_ttl  INTEGER NOT NULL,
	identity  TEXT    NOT NULL,
	ended_by  TEXT    NOT NULL
);
CREATE UNIQUE INDEX claims_id    ON claims (id);
CREATE INDEX claims_created      ON claims (created, id, resource, owner);
CREATE INDEX claims_status       ON claims (status, created, id);
CREATE INDEX claims_finished     ON claims (finished);
-- One row: the log that the file belongs to, and its last entry of which everything is here. The entries of a gap
-- ended while the file could not be written.
CREATE TABLE position (log INTEGER NOT NULL, entry INTEGER NOT NULL);
CREATE TABLE gaps (after INTEGER NOT NULL, entry INTEGER NOT NULL, claims INTEGER NOT NULL);
`

const columns = "id, resource, owner, mode, type, ttl, user_data, value, status, enqueued, token, version, deadline, created, activated, finished, reason, session, wait_ttl, identity, ended_by"

var (
	// ErrAlien is returned by Open for a file of another log, or of another version of Locket.
	ErrAlien = errors.New("the file of the history does not belong here")
	// ErrUnreadable is returned, wrapped, when the file cannot be read.
	ErrUnreadable = errors.New("the history cannot be read")
)

// History is the file. Write, Prune and Close are called by one goroutine at a time; what reads may be called by any.
type History struct {
	// OnFind is for tests: Find calls it, unless it is nil, before it reads the file.
	OnFind func(id string)

	path    string
	writer  *sqlite.Conn
	readers *sqlitex.Pool
	lookup  struct {
		turn chan struct{} // is full while somebody looks a claim up
		conn *sqlite.Conn
	}
	entry uint64
	count int64
	mu    sync.Mutex // of entry and count
}

// Ended is a claim that has ended, in an entry of the log.
type Ended struct {
	Entry uint64
	Claim *claim.Claim
}

const (
	readers     = 4
	writerCache = 16 << 20
	readerCache = 8 << 20
)

// Open opens the history of the log with an id, or makes a new one.
func Open(path string, log uint64, fresh bool) (_ *History, err error) {
	if _, err := os.Stat(path); err != nil && !fresh {
		return nil, fmt.Errorf("%w: bring it back, or restore a backup", err)
	}
	h := &History{path: path}
	h.lookup.turn = make(chan struct{}, 1)
	defer func() {
		if err != nil {
			_ = h.Close()
			err = fmt.Errorf("open %s: %w", path, err)
		}
	}()
	if h.writer, err = sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL); err != nil {
		return nil, err
	}
	if err = pragmas(h.writer, writerCache); err != nil {
		return nil, err
	}
	if err = h.prepare(log); err != nil {
		return nil, err
	}
	if h.lookup.conn, err = sqlite.OpenConn(path, sqlite.OpenReadOnly); err != nil {
		return nil, err
	}
	if err = pragmas(h.lookup.conn, readerCache); err != nil {
		return nil, err
	}
	h.readers, err = sqlitex.NewPool(path, sqlitex.PoolOptions{
		Flags: sqlite.OpenReadOnly, PoolSize: readers,
		PrepareConn: func(conn *sqlite.Conn) error { return pragmas(conn, readerCache) },
	})
	return h, err
}

func pragmas(conn *sqlite.Conn, cache int) error {
	conn.SetBusyTimeout(5 * time.Second)
	for _, pragma := range []string{"PRAGMA synchronous = FULL", fmt.Sprintf("PRAGMA cache_size = -%d", cache>>10)} {
		if err := sqlitex.ExecuteTransient(conn, pragma, nil); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the tables, or looks whether they are those of the log.
func (h *History) prepare(log uint64) (err error) {
	end, err := sqlitex.ImmediateTransaction(h.writer)
	if err != nil {
		return err
	}
	defer end(&err)
	at, err := sqlitex.ResultInt(h.writer.Prep("PRAGMA user_version"))
	if err != nil {
		return err
	}
	switch at {
	case 0:
		script := schema + fmt.Sprintf("INSERT INTO position (log, entry) VALUES (%d, 0); PRAGMA user_version = %d;", int64(log), version)
		return sqlitex.ExecuteScript(h.writer, script, nil)
	case version:
	default:
		return fmt.Errorf("%w: it is of version %d, and this locket reads %d", ErrAlien, at, version)
	}
	var of uint64
	err = sqlitex.Execute(h.writer, "SELECT log, entry, (SELECT count(*) FROM claims) FROM position", &sqlitex.ExecOptions{
		ResultFunc: func(row *sqlite.Stmt) error {
			of, h.entry, h.count = uint64(row.ColumnInt64(0)), uint64(row.ColumnInt64(1)), row.ColumnInt64(2)
			return nil
		},
	})
	if err == nil && of != log {
		err = fmt.Errorf("%w: it is that of another server: take it away to begin a new one", ErrAlien)
	}
	return err
}

// Entry returns the last entry of the log of which the file has everything.
func (h *History) Entry() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.entry
}

// Count returns how many claims the file has.
func (h *History) Count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// Gap are claims that ended while the file could not be written, and that it therefore lacks.
type Gap struct {
	// After and Entry are the entries of the log between which they ended, the first one excluded.
	After, Entry uint64
	Claims       int
}

// Write adds claims that have ended, after which the file has everything up to an entry of the log, but for the gap.
func (h *History) Write(claims []Ended, entry uint64, gap *Gap) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", h.path, err)
		}
	}()
	added := 0
	err = h.transaction(func() error {
		insert := h.writer.Prep("INSERT OR IGNORE INTO claims (entry, " + columns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
		for _, e := range claims {
			bind(insert, e)
			if err := run(insert); err != nil {
				return err
			}
			added += h.writer.Changes()
		}
		if gap != nil {
			err := sqlitex.Execute(h.writer, "INSERT INTO gaps (after, entry, claims) VALUES (?, ?, ?)",
				&sqlitex.ExecOptions{Args: []any{int64(gap.After), int64(gap.Entry), gap.Claims}})
			if err != nil {
				return err
			}
		}
		return sqlitex.Execute(h.writer, "UPDATE position SET entry = ?", &sqlitex.ExecOptions{Args: []any{int64(entry)}})
	})
	if err == nil {
		h.mu.Lock()
		h.entry, h.count = entry, h.count+int64(added)
		h.mu.Unlock()
	}
	return err
}

func (h *History) transaction(fn func() error) (err error) {
	end, err := sqlitex.ImmediateTransaction(h.writer)
	if err != nil {
		return err
	}
	defer end(&err)
	return fn()
}

func run(stmt *sqlite.Stmt) error {
	_, err := stmt.Step()
	return errors.Join(err, stmt.Reset())
}

func bind(stmt *sqlite.Stmt, e Ended) {
	c := e.Claim
	stmt.BindInt64(1, int64(e.Entry))
	stmt.BindText(2, c.ID)
	stmt.BindText(3, c.Resource)
	stmt.BindText(4, c.Owner)
	stmt.BindInt64(5, int64(c.Mode))
	stmt.BindInt64(6, int64(c.Type))
	stmt.BindInt64(7, int64(c.TTL))
	if c.UserData == nil {
		stmt.BindNull(8)
	} else {
		stmt.BindText(8, string(c.UserData))
	}
	stmt.BindText(9, c.Value)
	stmt.BindInt64(10, int64(c.Status))
	stmt.BindInt64(11, int64(c.Enqueued))
	stmt.BindInt64(12, int64(c.Token))
	stmt.BindInt64(13, int64(c.Version))
	stmt.BindInt64(14, int64(c.Deadline))
	stmt.BindInt64(15, int64(c.Created))
	stmt.BindInt64(16, int64(c.Activated))
	stmt.BindInt64(17, int64(c.Finished))
	stmt.BindText(18, c.Reason)
	stmt.BindText(19, c.Session)
	stmt.BindInt64(20, int64(c.WaitTTL))
	stmt.BindText(21, c.Identity)
	stmt.BindText(22, c.EndedBy)
}

// scan reads a claim from a row of columns.
func scan(row *sqlite.Stmt) *claim.Claim {
	c := &claim.Claim{
		ID:        row.ColumnText(0),
		Resource:  row.ColumnText(1),
		Owner:     row.ColumnText(2),
		Mode:      claim.Mode(row.ColumnInt64(3)),
		Type:      claim.Type(row.ColumnInt64(4)),
		TTL:       time.Duration(row.ColumnInt64(5)),
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
		WaitTTL:   time.Duration(row.ColumnInt64(18)),
		Identity:  row.ColumnText(19),
		EndedBy:   row.ColumnText(20),
	}
	if !row.ColumnIsNull(6) {
		c.UserData = []byte(row.ColumnText(6))
	}
	return c
}

// findTimeout is how long Find waits for those before it.
const findTimeout = 5 * time.Second

// Find returns the claim with an id, nil if there is none. It reads the file, which nothing interrupts. The end of ctx
// ends the wait for those before it, and so does findTimeout.
func (h *History) Find(ctx context.Context, id string) (c *claim.Claim, err error) {
	if err := h.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer func() { <-h.lookup.turn }()
	if h.OnFind != nil {
		h.OnFind(id)
	}
	stmt, err := h.lookup.conn.Prepare("SELECT " + columns + " FROM claims WHERE id = ?")
	if err == nil {
		stmt.BindText(1, id)
		var found bool
		if found, err = stmt.Step(); found {
			c = scan(stmt)
		}
		err = errors.Join(err, stmt.Reset())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return c, nil
}

func (h *History) takeTurn(ctx context.Context) error {
	select {
	case h.lookup.turn <- struct{}{}:
		return nil
	default:
	}
	late := time.NewTimer(findTimeout)
	defer late.Stop()
	select {
	case h.lookup.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return fmt.Errorf("%w: the disk has not answered others for %s", ErrUnreadable, findTimeout)
	}
}

// Prune deletes up to limit claims that ended before a moment, the oldest first, and returns how many it has deleted.
func (h *History) Prune(before claim.Time, limit int) (n int, err error) {
	err = h.transaction(func() error {
		err := sqlitex.Execute(h.writer, "DELETE FROM claims WHERE rowid IN (SELECT rowid FROM claims WHERE finished < ? ORDER BY finished LIMIT ?)",
			&sqlitex.ExecOptions{Args: []any{int64(before), limit}})
		n = h.writer.Changes()
		return err
	})
	if err == nil {
		h.mu.Lock()
		h.count -= int64(n)
		h.mu.Unlock()
	}
	return n, err
}

// Cutoff returns the moment at which the keep-th newest claim ended, or 0 when there are fewer.
func (h *History) Cutoff(ctx context.Context, keep int) (at claim.Time, err error) {
	err = h.read(ctx, "SELECT finished FROM claims ORDER BY finished DESC LIMIT 1 OFFSET ?", []any{keep - 1}, func(row *sqlite.Stmt) bool {
		at = claim.Time(row.ColumnInt64(0))
		return false
	})
	return at, err
}

// read runs a query and calls row for each of its rows, until it returns false.
func (h *History) read(ctx context.Context, sql string, args []any, row func(*sqlite.Stmt) (more bool)) error {
	conn, err := h.readers.Take(ctx)
	if err == nil {
		defer h.readers.Put(conn)
		err = query(conn, sql, args, row)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
}

func query(conn *sqlite.Conn, sql string, args []any, row func(*sqlite.Stmt) (more bool)) error {
	stmt, err := conn.Prepare(sql)
	if err != nil {
		return err
	}
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
		default:
			panic(fmt.Sprintf("history: cannot bind %T", arg))
		}
	}
	for {
		more, err := stmt.Step()
		if err != nil || !more || !row(stmt) {
			return errors.Join(err, stmt.Reset())
		}
	}
}

// Close closes the file.
func (h *History) Close() error {
	var errs []error
	if h.readers != nil {
		errs = append(errs, h.readers.Close())
	}
	for _, conn := range []*sqlite.Conn{h.lookup.conn, h.writer} {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}
