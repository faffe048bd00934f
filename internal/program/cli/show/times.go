package show

import (
	"strings"
	"time"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/models/jsonview"
)

// Moment is a time by the server's clock.
type Moment struct {
	At time.Time
	// age is how long ago it was by the server's clock, nil if the server does not say.
	Age *time.Duration
}

// Ago returns how long ago a moment was. The clock of this machine is used only where the server does not say.
func (l Look) Ago(m Moment) string {
	age := max(0, l.Now.Sub(m.At))
	if m.Age != nil {
		age = *m.Age
	}
	return printable.Duration(age, 1) + " ago"
}

// Since returns how long ago a moment was; with room, and not for a terminal, the moment itself.
func (l Look) Since(m Moment) string {
	if l.Terminal || !l.Wide {
		return l.Ago(m)
	}
	return m.At.Format(jsonview.TimeFormat)
}

// Label is the name of a field, and a space to the values.
func Label(name string) string {
	const columns = 12
	return name + strings.Repeat(" ", columns-len(name))
}

// Field returns a line with a name and a value, which holds nothing unprintable.
func (l Look) Field(name, value string) string { return Label(name) + value + "\n" }
