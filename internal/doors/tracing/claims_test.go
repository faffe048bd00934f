package tracing

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestClaimsAreBounded: the newest claims are remembered, however many come and go, and no more than the limit.
func TestClaimsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 10
		c, live, all := newClaims(limit), []string{}, []string{}
		for i := range rapid.IntRange(0, 500).Draw(t, "steps") {
			if len(live) > 0 && rapid.Bool().Draw(t, "ends") {
				at := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				c.remove(live[at])
				live = append(live[:at:at], live[at+1:]...)
				continue
			}
			id := fmt.Sprint(i)
			c.add(id, made{})
			all = append(all, id)
			if live = append(live, id); len(live) > limit/2 {
				live = live[1:]
			}
		}
		if len(c.newer)+len(c.old) > limit {
			t.Fatalf("%d and %d are remembered", len(c.newer), len(c.old))
		}
		for _, id := range live {
			if _, known := c.find(id); !known {
				t.Fatalf("%s is forgotten", id)
			}
		}
		for _, id := range all {
			c.remove(id)
		}
		if !c.empty() {
			t.Fatalf("claims that have ended are remembered: %v, %v", c.newer, c.old)
		}
	})
}
