package history

import (
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// position has the log that the file belongs to, and the last entry that it covers.
type position struct {
	log, entry uint64
}

func (p position) values() []sqlite.Value {
	return []sqlite.Value{sqlite.IntegerValue(int64(p.log)), sqlite.IntegerValue(int64(p.entry))}
}

// write writes the position as a whole, so that a damaged one gets no valid checksum.
func (p position) write(conn *sqlite.Conn) error {
	return sqlitex.Execute(conn, "UPDATE position SET log = ?, entry = ?, sum = ?", &sqlitex.ExecOptions{
		Args: []any{int64(p.log), int64(p.entry), int64(checksum(p.values()))},
	})
}

// readPosition reads the position of a file, which must belong to a log.
func readPosition(conn *sqlite.Conn, log uint64) (p position, err error) {
	rows, intact := 0, false
	err = query(conn, "SELECT log, entry, sum FROM position", nil, func(row *sqlite.Stmt) bool {
		rows++
		p.log, p.entry = uint64(row.ColumnInt64(0)), uint64(row.ColumnInt64(1))
		intact = row.ColumnInt64(2) == int64(checksum(p.values()))
		return true
	})
	switch {
	case err != nil:
		return p, err
	case rows != 1 || !intact:
		return p, fmt.Errorf("the position: %w", ErrDamaged)
	case p.log != log:
		return p, fmt.Errorf("%w: it belongs to another server", ErrAlien)
	}
	return p, nil
}
