package tracing

import (
	"time"

	"go.opentelemetry.io/otel/trace"
)

// maxClaims is of how many live claims a server remembers by which call they were made.
const maxClaims = 20_000

// made is the call that made a claim, or asked for it last, and when that was committed.
type made struct {
	span trace.SpanContext
	at   time.Time
}

// claims remembers the calls by which live claims were made, up to a limit: then the oldest are forgotten. It is used by the goroutine that
// commits alone.
type claims struct {
	limit int
	of    map[string]made
	order []string // in which they came; some may be gone
}

func newClaims(limit int) claims { return claims{limit: limit, of: make(map[string]made)} }

// add remembers a claim, unless it is known.
func (c *claims) add(id string, m made) {
	if _, known := c.of[id]; known {
		return
	}
	for len(c.of) >= c.limit {
		delete(c.of, c.order[0])
		c.order = c.order[1:]
	}
	c.of[id], c.order = m, append(c.order, id)
	if len(c.order) > 2*c.limit {
		c.compact()
	}
}

func (c *claims) remove(id string) { delete(c.of, id) }

// compact drops from the order what is gone.
func (c *claims) compact() {
	left := make([]string, 0, len(c.of)+1)
	seen := make(map[string]bool, len(c.of))
	for _, id := range c.order {
		if _, known := c.of[id]; known && !seen[id] {
			seen[id] = true
			left = append(left, id)
		}
	}
	c.order = left
}
