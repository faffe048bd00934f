package history

import (
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

// columns are the fields that lists filter and sort by, and the rest of the claim, in the order of columnsOf.
const columns = "id, resource, owner, take, units, status, created, activated, finished, rest"

// columnsOf returns the fields of a claim that have a column of their own.
func columnsOf(c *claim.Claim) [restColumn]any {
	return [...]any{&c.ID, &c.Resource, &c.Owner, &c.Units.Take, &c.Units.Of, &c.Status, &c.Created, &c.Activated, &c.Finished}
}

// The places of columns, and of the column behind them.
const (
	createdColumn = 6
	restColumn    = 9
	intactColumn  = restColumn + 1
)

// rowsAtOnce is how many rows a statement inserts: a row by itself takes a fifth more processor time.
const rowsAtOnce = 16

// insertOf returns the statement that inserts some rows.
func insertOf(rows int) string {
	row := "(" + strings.Repeat("?, ", intactColumn+1) + "?)"
	return "INSERT OR IGNORE INTO claims (entry, " + columns + ", sum) VALUES " + row + strings.Repeat(", "+row, rows-1)
}

// rowWriter writes rows. It uses its memory again.
type rowWriter struct {
	values []sqlite.Value
	rest   []byte
}

// bind binds the values of a row, and their checksum after them.
func (w *rowWriter) bind(stmt *sqlite.Stmt, row int, e Ended) {
	w.setValues(e)
	at := row * (len(w.values) + 1)
	for _, v := range w.values {
		at++
		switch v.Type() {
		case sqlite.TypeInteger:
			stmt.BindInt64(at, v.Int64())
		case sqlite.TypeText:
			stmt.BindText(at, v.Text())
		default:
			stmt.BindBytes(at, w.rest)
		}
	}
	stmt.BindInt64(at+1, int64(checksum(w.values)))
}

// setValues sets the entry and the columns of a claim.
func (w *rowWriter) setValues(e Ended) {
	values := append(w.values[:0], sqlite.IntegerValue(int64(e.Entry)))
	rest := *e.Claim
	for _, field := range columnsOf(&rest) {
		switch field := field.(type) {
		case *string:
			values = append(values, sqlite.TextValue(*field))
			*field = ""
		case *uint32:
			values = append(values, takeNumber(field))
		case *claim.Status:
			values = append(values, takeNumber(field))
		case *claim.Time:
			values = append(values, takeNumber(field))
		}
	}
	c := codec.Writer(w.rest[:0])
	c.Near(e.Claim.Created, e.Claim.Created)
	c.Claim(&rest)
	w.rest = c.Buffer()
	w.values = append(values, sqlite.BlobValue(w.rest))
}

// takeNumber returns a field that has a column, and sets it to 0 in the rest.
func takeNumber[N ~uint8 | ~uint32 | ~int64](field *N) sqlite.Value {
	n := int64(*field)
	*field = 0
	return sqlite.IntegerValue(n)
}

// scan reads a claim from a row of columns. If the row is damaged, the claim is wrong, or not there.
func scan(row *sqlite.Stmt) (*claim.Claim, error) {
	rest := make([]byte, row.ColumnLen(restColumn))
	row.ColumnBytes(restColumn, rest)
	r, created := codec.Reader(rest), claim.Time(row.ColumnInt64(createdColumn))
	r.Sharing(true)
	r.Near(created, created)
	c := new(claim.Claim)
	if r.Claim(c); r.End() != nil {
		return nil, r.End()
	}
	for i, field := range columnsOf(c) {
		switch field := field.(type) {
		case *string:
			*field = row.ColumnText(i)
		case *uint32:
			*field = uint32(row.ColumnInt64(i))
		case *claim.Status:
			*field = claim.Status(row.ColumnInt64(i))
		case *claim.Time:
			*field = claim.Time(row.ColumnInt64(i))
		}
	}
	return c, nil
}
