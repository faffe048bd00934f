package history

import (
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// position is which log the file belongs to, and its last entry of which everything is there.
type position struct {
	log, entry uint64
	// unsummed is the number of the last row of claims that may be without a checksum.
	unsummed int64
}

func (p position) values() []sqlite.Value {
	return []sqlite.Value{sqlite.IntegerValue(int64(p.log)), sqlite.IntegerValue(int64(p.entry)), sqlite.IntegerValue(p.unsummed)}
}

// write writes the position as a whole, so that a damaged one gets no valid checksum.
func (p position) write(conn *sqlite.Conn) error {
	return sqlitex.Execute(conn, "UPDATE position SET log = ?, entry = ?, unsummed = ?, sum = ?", &sqlitex.ExecOptions{
		Args: []any{int64(p.log), int64(p.entry), p.unsummed, int64(checksum(p.values()))},
	})
}

// readPosition reads the position of a file of some version, which must be that of a log.
func readPosition(conn *sqlite.Conn, at int, log uint64) (p position, err error) {
	sql, rows, intact := "SELECT log, entry, unsummed, sum FROM position", 0, false
	if at == 1 {
		sql = "SELECT log, entry FROM position"
	}
	err = query(conn, sql, nil, func(row *sqlite.Stmt) bool {
		rows++
		p.log, p.entry, intact = uint64(row.ColumnInt64(0)), uint64(row.ColumnInt64(1)), at == 1
		if at != 1 {
			p.unsummed = row.ColumnInt64(2)
			intact = row.ColumnInt64(3) == int64(checksum(p.values()))
		}
		return true
	})
	switch {
	case err != nil:
		return p, err
	case rows != 1 || !intact:
		return p, fmt.Errorf("the position: %w", ErrDamaged)
	case p.log != log:
		return p, fmt.Errorf("%w: it is that of another server", ErrAlien)
	}
	return p, nil
}
