package history

import (
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Servers of a cluster have the same history. A server whose file has gaps gets the claims from a server whose file has none, in
// ranges: first come the claims with the lowest ids. The file notes how far it has got with a gap, in the transaction that adds a range.

// noted is a gap in the file.
type noted struct {
	row int64
	Gap
	// id is the id up to where the gap was filled.
	id string
}

// addGap adds a gap, and returns its row.
func (h *History) addGap(g Gap) (row int64, err error) {
	err = sqlitex.Execute(h.writer, "INSERT INTO gaps (after, entry, claims) VALUES (?, ?, ?)",
		&sqlitex.ExecOptions{Args: []any{int64(g.After), int64(g.Entry), g.Claims}})
	return h.writer.LastInsertRowID(), err
}

// Complete reports whether the file has no gap.
func (h *History) Complete() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.gaps) == 0
}

// lacks reports whether the file may lack claims that ended after one entry and up to another.
func (h *History) lacks(after, entry uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.gaps {
		if g.After < entry && g.Entry > after {
			return true
		}
	}
	return false
}

func readGaps(conn *sqlite.Conn) (gaps []noted, err error) {
	err = query(conn, "SELECT rowid, after, entry, claims, id FROM gaps ORDER BY rowid", nil, func(row *sqlite.Stmt) bool {
		gaps = append(gaps, noted{
			row: row.ColumnInt64(0),
			Gap: Gap{After: uint64(row.ColumnInt64(1)), Entry: uint64(row.ColumnInt64(2)), Claims: int(row.ColumnInt64(3))},
			id:  row.ColumnText(4),
		})
		return true
	})
	return gaps, err
}

// noteFilled notes that a gap was filled up to an id, or that it is none any more.
func (h *History) noteFilled(g noted, id string, whole bool) error {
	if whole {
		return sqlitex.Execute(h.writer, "DELETE FROM gaps WHERE rowid = ?", &sqlitex.ExecOptions{Args: []any{g.row}})
	}
	return sqlitex.Execute(h.writer, "UPDATE gaps SET id = ? WHERE rowid = ?", &sqlitex.ExecOptions{Args: []any{id, g.row}})
}
