package history

import (
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Servers of a cluster have the same history. A server whose file has gaps gets the claims from a server whose file has none, in
// ranges: first come the claims with the lowest ids. The file notes how far it has got with a gap, in the transaction that adds a range.

// filledSchema makes the table of that. Most files have none.
const filledSchema = `
CREATE TABLE IF NOT EXISTS filled (
	gap INTEGER PRIMARY KEY, -- its rowid
	id  TEXT NOT NULL        -- the claims up to this one are there
);
`

// noted is a gap in the file.
type noted struct {
	row int64
	Gap
	// id is the id up to where the gap was filled.
	id string
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
	err = query(conn, "SELECT rowid, after, entry, claims FROM gaps ORDER BY rowid", nil, func(row *sqlite.Stmt) bool {
		gaps = append(gaps, noted{
			row: row.ColumnInt64(0),
			Gap: Gap{After: uint64(row.ColumnInt64(1)), Entry: uint64(row.ColumnInt64(2)), Claims: int(row.ColumnInt64(3))},
		})
		return true
	})
	if err != nil || len(gaps) == 0 {
		return gaps, err
	}
	filled := false
	err = query(conn, "SELECT 1 FROM sqlite_master WHERE name = 'filled'", nil, func(*sqlite.Stmt) bool { filled = true; return true })
	if err != nil || !filled {
		return gaps, err
	}
	for i := range gaps {
		err = query(conn, "SELECT id FROM filled WHERE gap = ?", []any{gaps[i].row}, func(row *sqlite.Stmt) bool { gaps[i].id = row.ColumnText(0); return true })
		if err != nil {
			return nil, err
		}
	}
	return gaps, nil
}

// noteFilled notes that a gap was filled up to an id, or that it is none any more.
func (h *History) noteFilled(g noted, id string, whole bool) error {
	if !whole {
		if err := sqlitex.ExecuteScript(h.writer, filledSchema, nil); err != nil {
			return err
		}
		return sqlitex.Execute(h.writer, "INSERT OR REPLACE INTO filled (gap, id) VALUES (?, ?)", &sqlitex.ExecOptions{Args: []any{g.row, id}})
	}
	if err := sqlitex.Execute(h.writer, "DELETE FROM gaps WHERE rowid = ?", &sqlitex.ExecOptions{Args: []any{g.row}}); err != nil {
		return err
	}
	if g.id == "" {
		return nil
	}
	return sqlitex.Execute(h.writer, "DELETE FROM filled WHERE gap = ?", &sqlitex.ExecOptions{Args: []any{g.row}})
}
