package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
)

// The widths of columns whose texts come one after the other.
const (
	ChangeWidth = 19
	ClockFormat = "15:04:05.000"
)

// NameWidth is the width of each of the two names in a line, beside the time and the change.
func (l Look) NameWidth() int {
	if l.Width == 0 {
		return 24
	}
	return max(LeastLong, (l.Width-len(ClockFormat)-ChangeWidth-3*len(Gap))/2)
}

// Padded makes a cell as wide as its column. One that is wider loses its middle, but with -o wide.
func (l Look) Padded(c Cell, width int) Cell {
	if l.Width > 0 {
		c.Text = printable.Middle(c.Text, width)
	}
	c.Text += strings.Repeat(" ", max(0, width-printable.Columns(c.Text)))
	return c
}

// Line joins cells in their colors.
func (l Look) Line(cells []Cell) string {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = l.Paint(c)
	}
	return strings.Join(texts, Gap)
}

// PrintLine prints one of many answers that come one after the other: in JSON a line for each, in YAML a document.
func PrintLine(out io.Writer, v View, format Format, look Look) error {
	text, err := Render(v, format, look)
	switch format.Name {
	case "json":
		var line []byte
		line, err = json.Marshal(v)
		text = printable.Escape(string(line), escapeJSON) + "\n"
	case "yaml":
		text = "---\n" + text
	}
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	if err != nil {
		return exit.With(exit.Failure, fmt.Errorf("the change could not be printed: %w", err))
	}
	return nil
}
