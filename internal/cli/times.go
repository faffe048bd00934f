package cli

import (
	"fmt"
	"time"

	"github.com/locket-service/locket/models/jsonview"
)

// units are those of a duration for people.
var units = []struct {
	name string
	size time.Duration
}{
	{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
}

// brief returns a duration in at most so many units, rounded down: "2h5m", "59s".
func brief(d time.Duration, most int) string {
	text := ""
	for _, unit := range units {
		n := d / unit.size
		d -= n * unit.size
		switch {
		case most > 0 && n > 0:
			text += fmt.Sprintf("%d%s", n, unit.name)
			most--
		case text != "":
			most-- // 2h0m is 2h
		}
	}
	if text == "" {
		return "0s"
	}
	return text
}

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
	return brief(age, 1) + " ago"
}

// since returns a moment as it fits into a table, and where there is room, and nobody reads it at once, as it is.
func (l look) since(m moment) string {
	if l.terminal || !l.wide {
		return l.ago(m)
	}
	return m.at.Format(jsonview.TimeFormat)
}
