package printable

import (
	"fmt"
	"time"
)

// units are the units of Duration.
var units = []struct {
	name string
	size time.Duration
}{
	{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
}

// Duration returns a duration in at most so many units, rounded down: "2h5m", "59s".
func Duration(d time.Duration, most int) string {
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
