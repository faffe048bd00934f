package history

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Open opens the history of the log with an id, or makes a new one. When the disk is full it opens it for reading alone: see Reopen.
func Open(path string, log uint64, fresh bool) (*History, error) {
	if err := private(path, fresh); err != nil {
		return nil, err
	}
	h := &History{path: path, log: log, walBytes: maxWALBytes, walNext: maxWALBytes, walWait: walWait, damaged: make(map[int64]string)}
	h.lookup.turn = make(chan struct{}, 1)
	err := h.open()
	if !fresh && NoRoom(err) {
		err = h.openReading()
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, advised(err))
	}
	return h, nil
}

// open opens the connections. After an error there are none.
func (h *History) open() (err error) {
	defer func() {
		if err != nil {
			_ = h.closeAll() // nothing was written
			h.lookup.conn, h.writer = nil, nil
			h.setPool(nil)
		}
	}()
	if h.writer, err = sqlite.OpenConn(h.path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL); err != nil {
		return err
	}
	if err = pragmas(h.writer, writerCache); err != nil {
		return err
	}
	if err = h.prepare(); err != nil {
		return err
	}
	if h.lookup.conn, err = sqlite.OpenConn(h.path, sqlite.OpenReadOnly); err != nil {
		return err
	}
	if err = h.forReading(h.lookup.conn); err != nil {
		return err
	}
	pool, err := sqlitex.NewPool(h.path, sqlitex.PoolOptions{Flags: sqlite.OpenReadOnly, PoolSize: readers, PrepareConn: h.forReading})
	if err == nil {
		h.setPool(pool)
	}
	return err
}

// openReading opens one connection, for all who read. It needs no room on the disk: SQLite keeps in memory what connections otherwise share in
// a file.
func (h *History) openReading() (err error) {
	conn, err := sqlite.OpenConn(h.path, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	conn.SetBusyTimeout(busyTimeout)
	err = sqlitex.ExecuteTransient(conn, "PRAGMA locking_mode = EXCLUSIVE", nil)
	if err == nil {
		err = h.forReading(conn)
	}
	if err == nil {
		err = h.load(conn)
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	h.lookup.conn = conn
	return nil
}

// Reopen opens a history for writing that Open has opened for reading alone, when there is room. Those who read wait meanwhile. It does nothing
// to another one. It is called as Write is.
func (h *History) Reopen() (err error) {
	if h.writer != nil {
		return nil
	}
	h.lookup.turn <- struct{}{}
	defer func() { <-h.lookup.turn }()
	if h.lookup.conn != nil {
		_ = h.lookup.conn.Close() // nothing was written
		h.lookup.conn = nil
	}
	if err = h.open(); NoRoom(err) {
		err = errors.Join(err, h.openReading())
	}
	if err != nil {
		err = fmt.Errorf("open %s: %w", h.path, advised(err))
	}
	return err
}

// NoRoom reports whether an error of this package says that the disk is full.
func NoRoom(err error) bool {
	code := sqlite.ErrCode(err)
	return code.ToPrimary() == sqlite.ResultFull || code == sqlite.ResultIOErrSHMSize
}

// private makes the file one that only its owner may read, and makes it first if it is fresh. SQLite gives the files beside it the same mode.
func private(path string, fresh bool) error {
	flags := os.O_RDWR
	if fresh {
		flags |= os.O_CREATE
	}
	file, err := os.OpenFile(path, flags, mode)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: bring it back, or restore a backup", err)
	} else if err != nil {
		return err
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if info, err := os.Stat(name); err == nil && info.Mode().Perm() != mode {
			_ = os.Chmod(name, mode) // a server that may not do that did not make the file
		}
	}
	return file.Close()
}

// mode is the mode of the file.
const mode = 0o600

// advised adds to the error of a damaged file what to do.
func advised(err error) error {
	switch code := sqlite.ErrCode(err).ToPrimary(); {
	case errors.Is(err, ErrDamaged), code == sqlite.ResultCorrupt, code == sqlite.ResultNotADB:
		return fmt.Errorf("%w: restore a backup, or move the file away and make an empty one in its place; the locks then go on, without the claims that have ended", err)
	}
	return err
}

// forReading prepares a connection that reads.
func (h *History) forReading(conn *sqlite.Conn) error {
	if err := pragmas(conn, readerCache); err != nil {
		return err
	}
	return addIntact(conn, h.noteDamage)
}

// busyTimeout is how long a connection waits for others.
const busyTimeout = 5 * time.Second

func pragmas(conn *sqlite.Conn, cache int) error {
	conn.SetBusyTimeout(busyTimeout)
	for _, pragma := range []string{"PRAGMA synchronous = FULL", fmt.Sprintf("PRAGMA cache_size = -%d", cache>>10)} {
		if err := sqlitex.ExecuteTransient(conn, pragma, nil); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the tables, or checks that they belong to the log.
func (h *History) prepare() (err error) {
	end, err := sqlitex.ImmediateTransaction(h.writer)
	if err != nil {
		return err
	}
	defer end(&err)
	at, err := versionOf(h.writer)
	if err == nil && at == 0 {
		err = errors.Join(sqlitex.ExecuteScript(h.writer, schema, nil), position{log: h.log}.write(h.writer))
	}
	if err != nil {
		return err
	}
	return h.load(h.writer)
}

// load reads how far the history has got.
func (h *History) load(conn *sqlite.Conn) error {
	if _, err := versionOf(conn); err != nil {
		return err
	}
	p, err := readPosition(conn, h.log)
	if err != nil {
		return err
	}
	gaps, err := readGaps(conn)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entry, h.gaps = p.entry, gaps
	return query(conn, "SELECT count(*) FROM claims", nil, func(row *sqlite.Stmt) bool { h.count = row.ColumnInt64(0); return true })
}

// versionOf returns the version of a file, 0 for an empty one.
func versionOf(conn *sqlite.Conn) (at int, err error) {
	err = query(conn, "PRAGMA user_version", nil, func(row *sqlite.Stmt) bool { at = row.ColumnInt(0); return true })
	if err == nil && at != 0 && at != version {
		err = fmt.Errorf("%w: it is of version %d, and this locket reads %d", ErrAlien, at, version)
	}
	return at, err
}
