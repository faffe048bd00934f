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

// claims has the calls that made live claims. At the limit it forgets the older half.
type claims struct {
	limit      int
	newer, old map[string]made
}

func newClaims(limit int) claims {
	return claims{limit: limit, newer: make(map[string]made), old: make(map[string]made)}
}

func (c *claims) empty() bool { return len(c.newer)+len(c.old) == 0 }

func (c *claims) find(id string) (m made, known bool) {
	if m, known = c.newer[id]; !known {
		m, known = c.old[id]
	}
	return m, known
}

// add adds a claim, unless it is there.
func (c *claims) add(id string, m made) {
	if _, known := c.find(id); known {
		return
	}
	if len(c.newer) == c.limit/2 {
		c.newer, c.old = make(map[string]made), c.newer
	}
	c.newer[id] = m
}

func (c *claims) remove(id string) {
	delete(c.newer, id)
	delete(c.old, id)
}
