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
	// wide: only -o wide shows it.
	wide bool
	// short is the minimum length of ids, which a terminal shows short; 0 for other texts.
	short int
	// least is how wide it is at least.
	least int
}

// A table's columns: fixed ones are shown whole, long ones may be shortened, ids have their own rule, and only -o wide shows the
// wide ones. A table that is too wide loses its last columns: the most important ones come first.
func fixed(name string) column    { return column{name: name} }
func shortID(least int) column    { return column{name: "ID", short: least} }
func long(name string) column     { return column{name: name, long: true} }
func onlyWide(name string) column { return column{name: name, wide: true} }

// since is a column of times: it stays as it is while they grow.
var since = column{name: "SINCE", least: len("59m ago")}

const (
	// leastLong is the minimum width of a column of shortened texts.
	leastLong = 6
	// mostPadded is the maximum width to which cells are padded where nothing is shortened: one long name must not
	// move the columns of all other rows.
	mostPadded = 40
)

// cell is a text in a table, which holds nothing unprintable.
type cell struct{ text, color string }

func newTable(columns ...column) *table { return &table{columns: columns} }

func (t *table) add(row ...cell) { t.rows = append(t.rows, row) }

// text returns the rows, aligned with spaces. No line ends with a space, and none is longer than look.width.
func (t *table) text(look look) string {
	shown := t.shown(look)
	widths := shown.widths(look)
	var text strings.Builder
	for _, row := range shown.rows {
		for i, c := range row {
			if look.width > 0 {
				c.text = printable.Middle(c.text, widths[i])
			}
			text.WriteString(look.paint(c))
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", max(0, widths[i]-printable.Columns(c.text))) + gap)
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
		if c.short > 0 && look.width > 0 {
			t.shorten(i, c.short)
		}
		for n, row := range t.rows {
			shown.rows[n+1] = append(shown.rows[n+1], row[i])
		}
	}
	if !named {
		shown.rows = shown.rows[1:]
	}
	return shown
}

// shorten makes the ids in a column short.
func (t *table) shorten(column, least int) {
	list := make([]string, len(t.rows))
	for i, row := range t.rows {
		list[i] = row[column].text
	}
	short := shortener(list, least)
	for _, row := range t.rows {
		row[column].text = short(row[column].text)
	}
}

// widths returns the width of each column: that of its widest cell, if there is room. Otherwise the widest of the long columns
// become narrower; then the last columns are removed.
func (t *table) widths(look look) []int {
	widths := make([]int, len(t.columns))
	total := len(gap) * (len(widths) - 1)
	for i, c := range t.columns {
		widths[i] = c.least
		for _, row := range t.rows {
			widths[i] = max(widths[i], printable.Columns(row[i].text))
		}
		if look.width == 0 {
			widths[i] = min(widths[i], mostPadded)
		}
		total += widths[i]
	}
	for look.width > 0 && total > look.width {
		last := len(widths) - 1
		switch widest := t.widest(widths); {
		case widest >= 0:
			widths[widest]--
			total--
		case last == 0:
			return []int{look.width}
		default:
			total -= widths[last] + len(gap)
			widths = widths[:last]
			t.removeLast()
		}
	}
	return widths
}

// widest returns the widest of the columns that may become narrower, -1 if there is none.
func (t *table) widest(widths []int) int {
	widest := -1
	for i, c := range t.columns {
		if c.long && widths[i] > leastLong && (widest < 0 || widths[i] > widths[widest]) {
			widest = i
		}
	}
	return widest
}

func (t *table) removeLast() {
	last := len(t.columns) - 1
	t.columns = t.columns[:last]
	for i, row := range t.rows {
		t.rows[i] = row[:last]
	}
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
