package cli

import (
	"time"

	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/models/jsonview"
)

// moment is a time by the server's clock.
type moment struct {
	at time.Time
	// age is how long ago it was by the server's clock, nil if the server does not say.
	age *time.Duration
}

// ago returns how long ago a moment was. The clock of this machine is used
// only where the server does not say.
func (l look) ago(m moment) string {
	age := max(0, l.now.Sub(m.at))
	if m.age != nil {
		age = *m.age
	}
	return printable.Duration(age, 1) + " ago"
}

// since returns a moment as it fits into a table, and where there is room, and nobody reads it at once, as it is.
func (l look) since(m moment) string {
	if l.terminal || !l.wide {
		return l.ago(m)
	}
	return m.at.Format(jsonview.TimeFormat)
}
