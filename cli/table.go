package cli

import (
	"strings"

	"github.com/locket-service/locket/cli/printable"
	"github.com/locket-service/locket/models/jsonview"
)

// gap is between two columns of a table.
const gap = "  "

// table is rows of cells, the first of which has the names of the columns.
type table struct{ rows [][]cell }

// cell is a text in a table, which holds nothing unprintable.
type cell struct{ text, color string }

func newTable(header ...string) *table {
	t := &table{}
	row := make([]cell, len(header))
	for i, name := range header {
		row[i] = cell{name, bold}
	}
	t.add(row...)
	return t
}

func (t *table) add(row ...cell) { t.rows = append(t.rows, row) }

// text returns the rows, aligned with spaces, of which no line ends in any.
func (t *table) text(look look) string {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], printable.Columns(c.text))
		}
	}
	var text strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			text.WriteString(look.paint(c))
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]-printable.Columns(c.text)) + gap)
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// plain returns a cell for a text of ours.
func plain(text string) cell {
	if text == "" {
		text = printable.None
	}
	return cell{text: text}
}

// nameCell returns a cell for a text of a client's.
func nameCell(name *string) cell {
	if name == nil {
		return cell{text: printable.None}
	}
	return cell{text: printable.Quoted(*name)}
}

// The colors of a terminal, by their numbers in SGR.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// statusColors says how a claim stands, at a glance.
var statusColors = map[string]string{
	"waiting": yellow, "active": green, "released": dim, "withdrawn": dim, "expired": red, "aborted": red, "revoked": red,
}

func statusCell(status jsonview.Status) cell {
	name := status.String()
	return cell{name, statusColors[name]}
}

// paint returns a cell's text in its color.
func (l look) paint(c cell) string {
	if !l.color || c.color == "" {
		return c.text
	}
	return "\x1b[" + c.color + "m" + c.text + "\x1b[0m"
}
