package history

import (
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/internal/claim"
)

// rowsAtOnce is how many rows a statement inserts: a row by itself takes a fifth more processor time.
const rowsAtOnce = 16

// insertOf returns the statement that inserts some rows.
func insertOf(rows int) string {
	const row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	return "INSERT OR IGNORE INTO claims (entry, " + columns + ", sum) VALUES " + row + strings.Repeat(", "+row, rows-1)
}

// bind binds the values of a row, and their checksum after them.
func bind(stmt *sqlite.Stmt, row int, values []sqlite.Value) {
	at := row * (len(values) + 1)
	for _, v := range values {
		at++
		switch v.Type() {
		case sqlite.TypeInteger:
			stmt.BindInt64(at, v.Int64())
		case sqlite.TypeText:
			stmt.BindText(at, v.Text())
		default:
			stmt.BindNull(at)
		}
	}
	stmt.BindInt64(at+1, int64(checksum(values)))
}

// appendRow appends the entry and the columns of a claim.
func appendRow(values []sqlite.Value, e Ended) []sqlite.Value {
	c, number, text := e.Claim, sqlite.IntegerValue, sqlite.TextValue
	var userData sqlite.Value
	if c.UserData != nil {
		userData = text(string(c.UserData))
	}
	return append(values,
		number(int64(e.Entry)), text(c.ID), text(c.Resource), text(c.Owner), number(int64(c.Mode)), number(int64(c.Type)), number(int64(c.TTL)), userData,
		text(c.Value), number(int64(c.Status)), number(int64(c.Enqueued)), number(int64(c.Token)), number(int64(c.Version)), number(int64(c.Deadline)),
		number(int64(c.Created)), number(int64(c.Activated)), number(int64(c.Finished)), text(c.Reason), text(c.Session), number(int64(c.WaitTTL)),
		text(c.Identity), text(c.EndedBy),
	)
}

// scan reads a claim from a row of columns.
func scan(row *sqlite.Stmt) *claim.Claim {
	c := &claim.Claim{
		ID:        row.ColumnText(0),
		Resource:  row.ColumnText(1),
		Owner:     row.ColumnText(2),
		Mode:      claim.Mode(row.ColumnInt64(3)),
		Type:      claim.Type(row.ColumnInt64(4)),
		TTL:       time.Duration(row.ColumnInt64(5)),
		Value:     row.ColumnText(7),
		Status:    claim.Status(row.ColumnInt64(8)),
		Enqueued:  uint64(row.ColumnInt64(9)),
		Token:     uint64(row.ColumnInt64(10)),
		Version:   uint64(row.ColumnInt64(11)),
		Deadline:  claim.Time(row.ColumnInt64(12)),
		Created:   claim.Time(row.ColumnInt64(13)),
		Activated: claim.Time(row.ColumnInt64(14)),
		Finished:  claim.Time(row.ColumnInt64(15)),
		Reason:    row.ColumnText(16),
		Session:   row.ColumnText(17),
		WaitTTL:   time.Duration(row.ColumnInt64(18)),
		Identity:  row.ColumnText(19),
		EndedBy:   row.ColumnText(20),
	}
	if !row.ColumnIsNull(6) {
		c.UserData = []byte(row.ColumnText(6))
	}
	return c
}
