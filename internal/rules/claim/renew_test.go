package claim_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// TestRenewHolders: the holder of a resource whose row was locked gets its full TTL again, although somebody waits; a
// holder that has more left, or belongs to a session, is left alone.
func TestRenewHolders(t *testing.T) {
	const now, ttl = claim.Time(1_000_000_000), time.Second
	for name, c := range map[string]struct {
		session        string
		deadline, want claim.Time
	}{
		"due":       {"", now.Add(-time.Minute), now.Add(ttl)},
		"not due":   {"", now.Add(ttl / 2), now.Add(ttl)},
		"more left": {"", now.Add(2 * ttl), now.Add(2 * ttl)},
		"session":   {"s", claim.Forever, claim.Forever},
	} {
		qs := claim.NewQueues(claim.Instant{Wall: now, Lease: now}, 1)
		qs.Put(claim.NewQueue(claim.Row{Resource: "r", Version: 7, Holder: "h", Waiting: 1}, 0, nil))
		qs.Add(&claim.Claim{ID: "h", Resource: "r", Status: claim.Active, TTL: ttl, Token: 5, Version: 7, Session: c.session, Deadline: c.deadline})
		qs.RenewHolders("r")
		if _, err := qs.Do(claim.Expire{Resources: []string{"r"}}); err != nil {
			t.Fatal(err)
		}
		h := qs.Resource("r").ExclusiveHolder()
		if h == nil || h.Deadline != c.want || h.Token != 5 || (h.Version != 7) != (c.want != c.deadline) {
			t.Errorf("%s: %+v", name, h)
		}
	}
}
