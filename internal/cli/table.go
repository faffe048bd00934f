package cli

import (
	"strings"

	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/models/jsonview"
)

// gap is between two columns of a table.
const gap = "  "

// table is rows of cells, below the names of the columns.
type table struct {
	columns []column
	rows    [][]cell
}

// column is a column of a table.
type column struct {
	name string
	// long: its texts may be shortened, in their middle, so that the table fits.
	long bool
	// wide: it is there with -o wide alone.
	wide bool
	// least is how wide it is at least.
	least int
}

// A table's columns: fixed ones are shown whole, long ones may be shortened, wide ones are there with -o wide alone.
func fixed(name string) column    { return column{name: name} }
func long(name string) column     { return column{name: name, long: true} }
func onlyWide(name string) column { return column{name: name, wide: true} }

// since is a column of times: it stays as it is while they grow.
var since = column{name: "SINCE", least: len("59m ago")}

// leastLong is how wide a column is at least whose texts are shortened.
const leastLong = 8

// cell is a text in a table, which holds nothing unprintable.
type cell struct{ text, color string }

func newTable(columns ...column) *table { return &table{columns: columns} }

func (t *table) add(row ...cell) { t.rows = append(t.rows, row) }

// text returns the rows, aligned with spaces. No line ends with a space.
func (t *table) text(look look) string {
	shown := t.shown(look)
	widths := shown.widths(look)
	var text strings.Builder
	for _, row := range shown.rows {
		for i, c := range row {
			c.text = printable.Middle(c.text, widths[i])
			text.WriteString(look.paint(c))
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]-printable.Columns(c.text)) + gap)
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// shown returns the columns that are to be seen, with their names in the first row unless they have none.
func (t *table) shown(look look) *table {
	shown, named := &table{rows: make([][]cell, len(t.rows)+1)}, false
	for i, c := range t.columns {
		if c.wide && !look.wide {
			continue
		}
		named = named || c.name != ""
		shown.columns = append(shown.columns, c)
		shown.rows[0] = append(shown.rows[0], cell{c.name, bold})
		for n, row := range t.rows {
			shown.rows[n+1] = append(shown.rows[n+1], row[i])
		}
	}
	if !named {
		shown.rows = shown.rows[1:]
	}
	return shown
}

// widths returns how wide each column is: as its widest cell, unless the table must be narrower; then the widest of the
// long columns lose what is too much.
func (t *table) widths(look look) []int {
	widths := make([]int, len(t.columns))
	total := len(gap) * (len(widths) - 1)
	for i, c := range t.columns {
		widths[i] = c.least
		for _, row := range t.rows {
			widths[i] = max(widths[i], printable.Columns(row[i].text))
		}
		total += widths[i]
	}
	for ; look.width > 0 && total > look.width; total-- {
		widest := -1
		for i, c := range t.columns {
			if c.long && widths[i] > leastLong && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
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
