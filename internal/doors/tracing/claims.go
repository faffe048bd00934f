package tracing

import (
	"time"

	"go.opentelemetry.io/otel/trace"
)

// maxClaims limits how many live claims a server remembers with the call that made them.
const maxClaims = 20_000

// made is the call that made a claim, and when that was committed.
type made struct {
	span trace.SpanContext
	at   time.Time
}

// claims has the calls that made live claims. Above the limit it drops the oldest.
type claims struct {
	limit int
	of    map[string]made
	order []string // ids in the order of add; some are no longer in of
}

func newClaims(limit int) claims { return claims{limit: limit, of: make(map[string]made)} }

// add adds a claim, unless it is there.
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

// compact removes ids from the order whose claims are gone.
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
