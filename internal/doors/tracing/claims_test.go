package tracing

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestClaimsAreBounded: the newest claims are remembered, however many come and go.
func TestClaimsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 10
		c, live := newClaims(limit), []string{}
		for i := range rapid.IntRange(0, 500).Draw(t, "steps") {
			if len(live) > 0 && rapid.Bool().Draw(t, "ends") {
				at := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				c.remove(live[at])
				live = append(live[:at:at], live[at+1:]...)
				continue
			}
			id := fmt.Sprint(i)
			c.add(id, made{})
			if live = append(live, id); len(live) > limit {
				live = live[1:]
			}
		}
		if len(c.of) != len(live) || len(c.order) > 2*limit {
			t.Fatalf("%d are remembered in an order of %d, want %d", len(c.of), len(c.order), len(live))
		}
		for _, id := range live {
			if _, known := c.of[id]; !known {
				t.Fatalf("%s is forgotten", id)
			}
		}
	})
}
