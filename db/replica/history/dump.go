package history

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// errBehind is returned by OpenDump when the file misses claims that are no longer in the log, or the server is about
// to write.
var errBehind = errors.New("the history is behind the snapshot")

// Dump reads a file, even while a server writes it.
type Dump struct {
	path  string
	conn  *sqlite.Conn
	entry uint64
	last  uint64
}

// Entry returns the last entry of the log that the file covers.
func (d *Dump) Entry() uint64 { return d.last }

// OpenDump opens the history of the log with an id, to read the claims that ended up to entry. The file must cover the
// entry least. It changes nothing.
func OpenDump(path string, log, least, entry uint64) (*Dump, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: bring it back, or restore a backup", err)
	}
	d, err := openDump(path, path, log, least, entry, sqlite.OpenReadOnly)
	if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultCantOpen || writtenBeside(path) {
		return d, err
	}
	// SQLite cannot make its files beside this one, as on a file system that is only read: so nobody writes to it.
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	unchanging := url.URL{Scheme: "file", Path: absolute, RawQuery: "immutable=1"}
	return openDump(path, unchanging.String(), log, least, entry, sqlite.OpenReadOnly, sqlite.OpenURI)
}

// writtenBeside reports whether there is something in the write-ahead log of a file.
func writtenBeside(path string) bool {
	info, err := os.Stat(path + "-wal")
	return err == nil && info.Size() > 0
}

func openDump(path, address string, log, least, entry uint64, flags ...sqlite.OpenFlags) (_ *Dump, err error) {
	d := &Dump{path: path, entry: entry}
	if d.conn, err = sqlite.OpenConn(address, flags...); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, advised(err))
	}
	if err := d.check(log, least); err != nil {
		_ = d.conn.Close() // nothing was written to it
		return nil, fmt.Errorf("open %s: %w", path, advised(err))
	}
	return d, nil
}

func (d *Dump) check(log, least uint64) (err error) {
	d.conn.SetBusyTimeout(5 * time.Second)
	switch at, err := versionOf(d.conn); {
	case err != nil:
		return err
	case at == 0:
		return fmt.Errorf("%w: it is empty", ErrAlien)
	}
	p, err := readPosition(d.conn, log)
	if err != nil {
		return err
	}
	if p.entry < least && p.entry != 0 { // a newly made one is empty
		return errBehind
	}
	d.last = p.entry
	return addIntact(d.conn, func(int64, string) {})
}

// Complete returns ErrIncomplete for a file that ends before an entry, or has a gap: other servers have the claims.
func (d *Dump) Complete(entry uint64) error {
	gaps, err := readGaps(d.conn)
	if err == nil && (len(gaps) > 0 || d.last < entry) {
		err = fmt.Errorf("%w: the others are being received from another server. Wait, or use that server's folder; "+
			"or go on without them: sqlite3 %s 'DELETE FROM gaps'", ErrIncomplete, d.path)
	}
	return err
}

// dumpPage is how many claims are read at once, so that nothing keeps the server from tidying up the file meanwhile.
const dumpPage = 1000

// Read calls ended for each claim that is not cut off, and damaged, in its place, with a description of each damaged one.
func (d *Dump) Read(cuts record.Cuts, ended func(*claim.Claim) error, damaged func(problem string) error) error {
	sql := "SELECT " + columns + ", " + intact + ", rowid, entry FROM claims NOT INDEXED WHERE rowid > ? ORDER BY rowid LIMIT ?"
	for last, n := int64(-1<<63), dumpPage; n == dumpPage; {
		n = 0
		var failed error
		err := query(d.conn, sql, []any{last, dumpPage}, func(row *sqlite.Stmt) bool {
			n, last = n+1, row.ColumnInt64(intactColumn+1)
			entry := uint64(row.ColumnInt64(intactColumn + 2))
			switch c, wrong := scan(row); {
			case wrong != nil || !row.ColumnBool(intactColumn):
				failed = damaged(damage(d.path, last, row.ColumnText(0)))
			case entry <= d.entry && !cuts.Delete(entry, c):
				failed = ended(c)
			}
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

// Inspect calls problem for each page and each index that is damaged.
func (d *Dump) Inspect(problem func(text string)) error {
	err := query(d.conn, "PRAGMA integrity_check", nil, func(row *sqlite.Stmt) bool {
		if text := row.ColumnText(0); text != "ok" {
			problem(d.path + ": " + text + "; if it is of an index: sqlite3 " + d.path + " REINDEX")
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnreadable, d.path, err)
	}
	return nil
}

// Close closes the file.
func (d *Dump) Close() error { return d.conn.Close() }
