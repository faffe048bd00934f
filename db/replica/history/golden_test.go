package history_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db/dbtest/golden"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestGolden: the tables of a file, and the messages of a transfer, stay as they are.
func TestGolden(t *testing.T) {
	range1 := history.Range(two(), "b", true)
	var asked []byte
	again := func(data []byte) (h *history.History, err error) {
		h = skipped(t, 300)
		_, err = h.Receive(func(request []byte, part func([]byte) error) error {
			asked = request
			return part(data)
		}, directly)
		return h, err
	}
	if _, err := again(range1); err != nil {
		t.Fatal(err)
	}
	golden.Check(
		t,
		golden.Format{Name: "history-1", Written: tables(t, nil), Again: func(data []byte) ([]byte, error) { return tables(t, data), nil }},
		golden.Format{Name: "range-1", Written: range1, Again: func(data []byte) (sent []byte, err error) {
			h, err := again(data)
			if err != nil {
				return nil, err
			}
			return sent, h.Send(t.Context(), asked, func(part []byte) error { sent = part; return nil })
		}},
		golden.Format{Name: "request-1", Written: asked, Again: func(data []byte) ([]byte, error) {
			h, err := again(range1)
			if err != nil {
				return nil, err
			}
			return data, h.Send(t.Context(), data, func([]byte) error { return nil })
		}},
	)
}

// tables returns SQL that makes a file of the history with two claims: of a new file, or of one that such SQL has made.
func tables(t *testing.T, sql []byte) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.db")
	if sql != nil {
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
		if err != nil {
			t.Fatal(err)
		}
		if err := sqlitex.ExecuteScript(conn, string(sql), nil); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	h, err := history.Open(path, 1, sql == nil)
	if err != nil {
		t.Fatal(err)
	}
	if sql == nil {
		if err := h.Write(two(), 300, &history.Gap{After: 3, Entry: 7, Claims: 5}); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range two() {
		if c, err := h.Find(t.Context(), e.Claim.ID); err != nil || c == nil || c.Status != e.Claim.Status || c.Reason != e.Claim.Reason {
			t.Errorf("claim %s is read as %+v (%v)", e.Claim.ID, c, err)
		}
	}
	if _, err := h.Remember(claim.Instant{Lease: 1, Wall: 2}); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return dump(t, path)
}

// dump returns SQL that makes a file.
func dump(t *testing.T, path string) []byte {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var sql strings.Builder
	each := func(query string, row func(*sqlite.Stmt)) {
		err := sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error { row(stmt); return nil }})
		if err != nil {
			t.Fatal(err)
		}
	}
	each("SELECT sql FROM sqlite_master ORDER BY rowid", func(row *sqlite.Stmt) { sql.WriteString(row.ColumnText(0) + ";\n") })
	for _, table := range []string{"claims", "position", "gaps", "readings"} {
		var names []string
		each("SELECT name FROM pragma_table_info('"+table+"')", func(row *sqlite.Stmt) { names = append(names, "quote("+row.ColumnText(0)+")") })
		each("SELECT "+strings.Join(names, " || ', ' || ")+" FROM "+table+" ORDER BY rowid", func(row *sqlite.Stmt) {
			fmt.Fprintf(&sql, "INSERT INTO %s VALUES (%s);\n", table, row.ColumnText(0))
		})
	}
	each("PRAGMA user_version", func(row *sqlite.Stmt) { fmt.Fprintf(&sql, "PRAGMA user_version = %d;\n", row.ColumnInt(0)) })
	return []byte(sql.String())
}
