// Package history is a server's file of ended claims. It is filled behind the commits, in large transactions; each
// records the last entry of the log that the file covers.
package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// version is the schema's.
const version = 1

// The index of statuses leaves out released claims (3), by far the most: each index is a tenth of the cost of a row.
const schema = `
CREATE TABLE claims (
	entry     INTEGER NOT NULL, -- of the log, where the claim ended
	id        TEXT    NOT NULL,
	resource  TEXT    NOT NULL,
	owner     TEXT    NOT NULL,
	take      INTEGER NOT NULL, -- the units of the claim
	units     INTEGER NOT NULL,
	status    INTEGER NOT NULL,
	created   INTEGER NOT NULL, -- in microseconds
	activated INTEGER NOT NULL,
	finished  INTEGER NOT NULL,
	rest      BLOB    NOT NULL, -- the other fields of the claim, by package codec
	sum       INTEGER NOT NULL -- the checksum of the other columns
);
CREATE UNIQUE INDEX claims_id    ON claims (id);
CREATE INDEX claims_created      ON claims (created, id, resource, owner);
CREATE INDEX claims_status       ON claims (status, created, id) WHERE status <> 3;
CREATE INDEX claims_finished     ON claims (finished);
-- One row: the log that the file belongs to, and the last entry that it covers. The entries of a gap
-- ended while the file could not be written.
CREATE TABLE position (log INTEGER NOT NULL, entry INTEGER NOT NULL, sum INTEGER NOT NULL);
-- The claims of a gap with ids up to one have been received from another server, '' for none.
CREATE TABLE gaps (after INTEGER NOT NULL, entry INTEGER NOT NULL, claims INTEGER NOT NULL, id TEXT NOT NULL DEFAULT '');
-- Readings of the clocks, so that a server that is restarted knows what is old.
CREATE TABLE readings (lease INTEGER NOT NULL PRIMARY KEY, wall INTEGER NOT NULL);
INSERT INTO position (log, entry, sum) VALUES (0, 0, 0);
PRAGMA user_version = 1;
`

var (
	// ErrAlien is returned by Open for a file of another log, or of another version of Locket.
	ErrAlien = errors.New("the file of the history does not belong here")
	// ErrUnreadable is returned, wrapped, when the file cannot be read.
	ErrUnreadable = errors.New("the history cannot be read")
)

// History is the file. Write, Tidy and Close are called by one goroutine at a time; what reads may be called by any.
type History struct {
	// OnFind is for tests: Find calls it, unless it is nil, before it reads the file.
	OnFind func(id string)
	// OnDamage is called, unless it is nil, with a description of a damaged row, when it is read for the first time.
	OnDamage func(problem string)

	path   string
	log    uint64
	writer *sqlite.Conn // nil while the history is open for reading alone
	lookup struct {
		turn chan struct{} // is full while somebody looks a claim up
		conn *sqlite.Conn
	}
	walBytes int64 // how large the write-ahead log may become
	walWait  time.Duration
	walNext  int64         // and at how many bytes that is looked after
	mu       sync.Mutex    // guards the following
	readers  *sqlitex.Pool // nil while all who read share the connection of lookup
	entry    uint64
	count    int64
	gaps     []noted          // in order; what is there never changes
	cuts     record.Cuts      // all
	hidden   []record.Cut     // the cuts whose claims may still be in the file
	damaged  map[int64]string // by the number of the row: the ids that damaged ones say
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

// Entry returns the last entry of the log that the file covers.
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

// Gap stands for claims that ended while the file could not be written, and are missing in it.
type Gap struct {
	// After and Entry are the entries of the log between which they ended, the first one excluded.
	After, Entry uint64
	Claims       int
}

// Write deletes what is hidden, and adds ended claims. After that the file is complete up to an entry of the log, except for the gap.
func (h *History) Write(claims []Ended, entry uint64, gap *Gap) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", h.path, err)
		}
	}()
	if err := h.Tidy(); err != nil { // a new claim may have the id of a hidden one
		return err
	}
	added := 0
	var gaps []noted
	err = h.transaction(func() (err error) {
		if added, err = h.insert(claims); err != nil {
			return err
		}
		if gap != nil {
			row, err := h.addGap(*gap)
			if err != nil {
				return err
			}
			gaps = []noted{{row: row, Gap: *gap}}
		}
		return position{h.log, entry}.write(h.writer)
	})
	if err == nil {
		h.mu.Lock()
		h.entry, h.count = entry, h.count+int64(added)
		h.gaps = append(slices.Clip(h.gaps), gaps...)
		h.mu.Unlock()
	}
	return err
}

// insert adds rows, except of ids that the file has, and returns how many.
func (h *History) insert(claims []Ended) (added int, err error) {
	var w rowWriter
	for rows := range slices.Chunk(claims, rowsAtOnce) {
		insert, err := h.writer.Prepare(insertOf(len(rows)))
		if err != nil {
			return 0, err
		}
		for i, e := range rows {
			w.bind(insert, i, e)
		}
		if err := run(insert); err != nil {
			return 0, err
		}
		added += h.writer.Changes()
	}
	return added, nil
}

func (h *History) transaction(fn func() error) error {
	err := h.commit(fn)
	if err == nil {
		h.shortenWAL()
	}
	return err
}

// maxWALBytes is how large the write-ahead log may become, and walWait how long those who read are waited for: commits may wait for this.
const (
	maxWALBytes = 64 << 20
	walWait     = 200 * time.Millisecond
)

// shortenWAL empties the write-ahead log when it has become large. SQLite does not restart it by itself while a reader
// is older than the last commit, as there always is when lists overlap. This waits for the current readers, for walWait
// at most. If that fails, it is tried again when the log has grown by as much once more.
func (h *History) shortenWAL() {
	info, err := os.Stat(h.path + "-wal")
	if err != nil || info.Size() < h.walNext {
		return
	}
	h.walNext = info.Size() + h.walBytes
	emptied := false
	h.writer.SetBusyTimeout(h.walWait)
	defer h.writer.SetBusyTimeout(busyTimeout)
	err = query(h.writer, "PRAGMA wal_checkpoint(TRUNCATE)", nil, func(row *sqlite.Stmt) bool { emptied = row.ColumnInt(0) == 0; return true })
	if err == nil && emptied {
		h.walNext = h.walBytes
	}
}

// errReading is returned by writers while the history is open for reading only.
var errReading = errors.New("there was no room on the disk to open it for writing")

// commit calls fn in a transaction.
func (h *History) commit(fn func() error) (err error) {
	if h.writer == nil {
		return errReading
	}
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

// findTimeout is how long Find waits for those before it.
const findTimeout = 5 * time.Second

// Find returns the claim with an id, nil if there is none. It reads the file, which nothing interrupts. The end of ctx
// ends the wait for those before it, and so does findTimeout.
func (h *History) Find(ctx context.Context, id string) (c *claim.Claim, err error) {
	if err := h.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer func() { <-h.lookup.turn }()
	if h.lookup.conn == nil {
		return nil, h.unreadable(errClosed)
	}
	if h.OnFind != nil {
		h.OnFind(id)
	}
	var damaged error
	kept, args := h.kept()
	err = query(h.lookup.conn, "SELECT "+columns+", "+intact+", rowid FROM claims WHERE id = ?"+kept, append([]any{id}, args...), func(row *sqlite.Stmt) bool {
		var wrong error
		if c, wrong = scan(row); wrong != nil || c.ID != id || !row.ColumnBool(intactColumn) { // a damaged index may lead to another claim
			damaged = fmt.Errorf("%w: row %d", ErrDamaged, row.ColumnInt64(intactColumn+1))
			h.noteDamage(row.ColumnInt64(intactColumn+1), id)
		}
		return false
	})
	if err = errors.Join(err, damaged); err != nil {
		return nil, h.unreadable(err)
	}
	return c, nil
}

// errClosed says that the history could not be opened again after Open.
var errClosed = errors.New("it is not open")

func (h *History) unreadable(err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnreadable, h.path, err)
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

// read runs a query and calls row for each of its rows, until it returns false.
func (h *History) read(ctx context.Context, sql string, args []any, row func(*sqlite.Stmt) (more bool)) error {
	conn, release, err := h.connection(ctx)
	late := false // the connection learns of the end of ctx a moment later
	if err == nil {
		defer release()
		err = query(conn, sql, args, func(stmt *sqlite.Stmt) bool {
			more := row(stmt)
			late = more && ctx.Err() != nil
			return more && !late
		})
	}
	switch {
	case err == nil && !late:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return h.unreadable(err)
	}
}

// connection returns a connection for a reader, until release is called.
func (h *History) connection(ctx context.Context) (conn *sqlite.Conn, release func(), err error) {
	pool := h.pool()
	if pool == nil {
		if err := h.takeTurn(ctx); err != nil {
			return nil, nil, err
		}
		if pool = h.pool(); pool == nil && h.lookup.conn != nil {
			return h.lookup.conn, func() { <-h.lookup.turn }, nil
		}
		<-h.lookup.turn
	}
	if pool == nil {
		return nil, nil, errClosed
	}
	conn, err = pool.Take(ctx)
	return conn, func() { pool.Put(conn) }, err
}

func (h *History) pool() *sqlitex.Pool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readers
}

func (h *History) setPool(pool *sqlitex.Pool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers = pool
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

// Close closes the file. It waits for those who read.
func (h *History) Close() error {
	h.lookup.turn <- struct{}{}
	defer func() { <-h.lookup.turn }()
	return h.closeAll()
}

// closeAll is Close for a caller that has the turn.
func (h *History) closeAll() error {
	var errs []error
	if pool := h.pool(); pool != nil {
		errs = append(errs, pool.Close())
	}
	for _, conn := range []*sqlite.Conn{h.lookup.conn, h.writer} {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}
