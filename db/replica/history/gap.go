package history

import (
	"fmt"
	"slices"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Servers of a cluster have the same history. A server whose file has gaps gets the claims from a server whose file has none, in
// ranges: first come the claims with the lowest ids. The file notes how far it has got with a gap, in the transaction that adds a range.

// filledSchema makes the table with the gaps that are being filled. Most files have none.
const filledSchema = `
CREATE TABLE IF NOT EXISTS filled (
	gap INTEGER PRIMARY KEY, -- its rowid
	id  TEXT NOT NULL        -- the claims up to this one are there, '' if none are
);
`

// noted is a gap in the file.
type noted struct {
	row int64
	Gap
	// id is the id up to where the gap was filled.
	id string
}

// JumpTo has the file go on after an entry, with a gap that Receive fills.
func (h *History) JumpTo(entry uint64) error {
	g := noted{Gap: Gap{After: h.Entry(), Entry: entry}}
	err := h.transaction(func() (err error) {
		if g.row, err = h.addGap(g.Gap); err != nil {
			return err
		}
		if err := h.noteFilled(g, "", false); err != nil {
			return err
		}
		return position{h.log, entry}.write(h.writer)
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", h.path, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entry, h.gaps = entry, append(slices.Clip(h.gaps), g)
	return nil
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
	err = query(conn, "SELECT rowid, after, entry, claims FROM gaps ORDER BY rowid", nil, func(row *sqlite.Stmt) bool {
		gaps = append(gaps, noted{
			row: row.ColumnInt64(0),
			Gap: Gap{After: uint64(row.ColumnInt64(1)), Entry: uint64(row.ColumnInt64(2)), Claims: int(row.ColumnInt64(3))},
		})
		return true
	})
	if err != nil {
		return nil, err
	}
	filled, err := readFilled(conn)
	for i, g := range gaps {
		gaps[i].id = filled[g.row]
	}
	return gaps, err
}

// readFilled returns how far the gaps that are being filled are filled, by their rows.
func readFilled(conn *sqlite.Conn) (filled map[int64]string, err error) {
	err = query(conn, "SELECT 1 FROM sqlite_master WHERE name = 'filled'", nil, func(*sqlite.Stmt) bool {
		filled = make(map[int64]string)
		return true
	})
	if err != nil || filled == nil {
		return nil, err
	}
	return filled, query(conn, "SELECT gap, id FROM filled", nil, func(row *sqlite.Stmt) bool {
		filled[row.ColumnInt64(0)] = row.ColumnText(1)
		return true
	})
}

// noteFilled notes that a gap was filled up to an id, or that it is none any more.
func (h *History) noteFilled(g noted, id string, whole bool) error {
	if err := sqlitex.ExecuteScript(h.writer, filledSchema, nil); err != nil {
		return err
	}
	if !whole {
		return sqlitex.Execute(h.writer, "INSERT OR REPLACE INTO filled (gap, id) VALUES (?, ?)", &sqlitex.ExecOptions{Args: []any{g.row, id}})
	}
	if err := sqlitex.Execute(h.writer, "DELETE FROM gaps WHERE rowid = ?", &sqlitex.ExecOptions{Args: []any{g.row}}); err != nil {
		return err
	}
	return sqlitex.Execute(h.writer, "DELETE FROM filled WHERE gap = ?", &sqlitex.ExecOptions{Args: []any{g.row}})
}
