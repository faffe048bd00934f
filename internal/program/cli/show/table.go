package show

import (
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/models/jsonview"
)

// Gap is between two columns of a table.
const Gap = "  "

// Table is rows of cells, below the names of the columns.
type Table struct {
	columns []Column
	rows    [][]Cell
}

// Column is a column of a table.
type Column struct {
	Name string
	// Long: its texts may be shortened, in their middle, so that the table fits.
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
func Fixed(name string) Column    { return Column{Name: name} }
func ShortID(least int) Column    { return Column{Name: "ID", short: least} }
func Long(name string) Column     { return Column{Name: name, long: true} }
func OnlyWide(name string) Column { return Column{Name: name, wide: true} }

// Since is a column of times. Its width does not change while they grow.
var Since = Column{Name: "SINCE", least: len("59m ago")}

const (
	// leastLong is the minimum width of a column of shortened texts.
	LeastLong = 6
	// mostPadded is the maximum width of padded cells where nothing is shortened: one long name must not move the
	// columns of all other rows.
	mostPadded = 40
)

// Cell is a text in a table, which holds nothing unprintable.
type Cell struct{ Text, Color string }

// Colored returns a cell with a color.
func Colored(text, color string) Cell { return Cell{text, color} }

func NewTable(columns ...Column) *Table { return &Table{columns: columns} }

func (t *Table) Add(row ...Cell) { t.rows = append(t.rows, row) }

// Text returns the rows, aligned with spaces. No line ends with a space, and none is longer than look.width.
func (t *Table) Text(look Look) string {
	shown := t.shown(look)
	widths := shown.widths(look)
	var text strings.Builder
	for _, row := range shown.rows {
		for i, c := range row {
			if look.Width > 0 {
				c.Text = printable.Middle(c.Text, widths[i])
			}
			text.WriteString(look.Paint(c))
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", max(0, widths[i]-printable.Columns(c.Text))) + Gap)
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// shown returns the visible columns, with their names in the first row unless they have none.
func (t *Table) shown(look Look) *Table {
	shown, named := &Table{rows: make([][]Cell, len(t.rows)+1)}, false
	for i, c := range t.columns {
		if c.wide && !look.Wide {
			continue
		}
		named = named || c.Name != ""
		shown.columns = append(shown.columns, c)
		shown.rows[0] = append(shown.rows[0], Title(c.Name))
		if c.short > 0 && look.Width > 0 {
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

func (t *Table) shorten(column, least int) {
	list := make([]string, len(t.rows))
	for i, row := range t.rows {
		list[i] = row[column].Text
	}
	short := Shortener(list, least)
	for _, row := range t.rows {
		row[column].Text = short(row[column].Text)
	}
}

// widths returns the width of each column: its widest cell, if there is room. Otherwise the widest of the long columns
// become narrower; then the last columns are removed.
func (t *Table) widths(look Look) []int {
	widths := make([]int, len(t.columns))
	total := len(Gap) * (len(widths) - 1)
	for i, c := range t.columns {
		widths[i] = c.least
		for _, row := range t.rows {
			widths[i] = max(widths[i], printable.Columns(row[i].Text))
		}
		if look.Width == 0 {
			widths[i] = min(widths[i], mostPadded)
		}
		total += widths[i]
	}
	for look.Width > 0 && total > look.Width {
		last := len(widths) - 1
		switch widest := t.widest(widths); {
		case widest >= 0:
			widths[widest]--
			total--
		case last == 0:
			return []int{look.Width}
		default:
			total -= widths[last] + len(Gap)
			widths = widths[:last]
			t.removeLast()
		}
	}
	return widths
}

// widest returns the widest of the columns that may become narrower, -1 if there is none.
func (t *Table) widest(widths []int) int {
	widest := -1
	for i, c := range t.columns {
		if c.long && widths[i] > LeastLong && (widest < 0 || widths[i] > widths[widest]) {
			widest = i
		}
	}
	return widest
}

func (t *Table) removeLast() {
	last := len(t.columns) - 1
	t.columns = t.columns[:last]
	for i, row := range t.rows {
		t.rows[i] = row[:last]
	}
}

// Plain returns a cell for a text of ours.
func Plain(text string) Cell {
	if text == "" {
		text = printable.None
	}
	return Cell{Text: text}
}

// Title returns a cell for the name of a column.
func Title(name string) Cell { return Cell{name, bold} }

// NameCell returns a cell for a text of a client's.
func NameCell(name *string) Cell {
	if name == nil {
		return Cell{Text: printable.None}
	}
	return Cell{Text: printable.Quoted(*name)}
}

// The colors of a terminal, by their numbers in SGR.
const (
	bold   = "1"
	Dim    = "2"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
)

// statusColors says how a claim stands, at a glance.
var statusColors = map[string]string{
	"waiting": Yellow, "active": Green, "released": Dim, "withdrawn": Dim, "expired": Red, "aborted": Red, "revoked": Red,
}

func StatusCell(status jsonview.Status) Cell {
	name := status.String()
	return Cell{name, statusColors[name]}
}

// Paint returns a cell's text in its color.
func (l Look) Paint(c Cell) string {
	if !l.Color || c.Color == "" {
		return c.Text
	}
	return "\x1b[" + c.Color + "m" + c.Text + "\x1b[0m"
}

func TtlCell(ttl *jsonview.Seconds) Cell {
	if ttl == nil {
		return Plain("")
	}
	return Plain(printable.Duration(ttl.Duration(), 2))
}

func TokenCell(token *uint64) Cell {
	if token == nil {
		return Plain("")
	}
	return Plain(strconv.FormatUint(*token, 10))
}

// The minimum lengths of short ids, so that few others begin alike: ids of claims have the time to the millisecond, ids
// of sessions 32 random bits.
const (
	ShortClaim   = 10
	ShortSession = 8
)

// Shortener returns how a terminal shows the ids of a list: as the shortest prefixes that distinguish them. Ids that users chose
// stay whole.
func Shortener(list []string, shortest int) func(id string) string {
	length, list := shortest, slices.Sorted(slices.Values(list))
	for i, id := range slices.Compact(list) {
		for i > 0 && strings.HasPrefix(id, list[i-1][:min(length, len(list[i-1]))]) && length < len(id) {
			length++
		}
	}
	return func(id string) string {
		if len(id) > length && (ids.IsClaim(id) || uuid.Validate(id) == nil) {
			return id[:length]
		}
		return id
	}
}
