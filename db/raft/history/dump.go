package history

import (
	"errors"
	"fmt"
	"os"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/internal/claim"
)

// errBehind is returned by OpenDump when the file lacks claims that are not in the log any more, or the server is about to write.
var errBehind = errors.New("the history is behind the snapshot")

// Dump reads a file, also while a server writes it.
type Dump struct {
	path  string
	conn  *sqlite.Conn
	entry uint64
}

// OpenDump opens the history of the log with an id, to read the claims that ended up to an entry of it. It changes nothing.
func OpenDump(path string, log, entry uint64) (_ *Dump, err error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: bring it back, or restore a backup", err)
	}
	d := &Dump{path: path, entry: entry}
	if d.conn, err = sqlite.OpenConn(path, sqlite.OpenReadOnly); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := d.check(log); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, errors.Join(err, d.conn.Close()))
	}
	return d, nil
}

func (d *Dump) check(log uint64) error {
	d.conn.SetBusyTimeout(5 * time.Second)
	at, of, has := 0, uint64(0), uint64(0)
	err := query(d.conn, "PRAGMA user_version", nil, func(row *sqlite.Stmt) bool { at = row.ColumnInt(0); return true })
	if err == nil && at != version {
		err = fmt.Errorf("%w: it is of version %d, and this locket reads %d", ErrAlien, at, version)
	}
	if err != nil {
		return err
	}
	err = query(d.conn, "SELECT log, entry FROM position", nil, func(row *sqlite.Stmt) bool {
		of, has = uint64(row.ColumnInt64(0)), uint64(row.ColumnInt64(1))
		return true
	})
	switch {
	case err != nil:
		return err
	case of != log:
		return fmt.Errorf("%w: it is that of another server", ErrAlien)
	case has < d.entry:
		return errBehind
	}
	return nil
}

// dumpPage is how many claims are read at once, so that nothing keeps the server from tidying up the file meanwhile.
const dumpPage = 1000

// Read calls ended for each claim.
func (d *Dump) Read(ended func(*claim.Claim) error) error {
	const sql = "SELECT " + columns + ", rowid FROM claims WHERE rowid > ? AND entry <= ? ORDER BY rowid LIMIT ?"
	for last, n := int64(-1<<63), dumpPage; n == dumpPage; {
		n = 0
		var failed error
		err := query(d.conn, sql, []any{last, int64(d.entry), dumpPage}, func(row *sqlite.Stmt) bool {
			n, last = n+1, row.ColumnInt64(row.ColumnCount()-1)
			failed = ended(scan(row))
			return failed == nil
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrUnreadable, d.path, err)
		}
	}
	return nil
}

// Close closes the file.
func (d *Dump) Close() error { return d.conn.Close() }
