package claim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/access"
	"github.com/locket-service/locket/internal/claim"
)

// TestQuota: only what would make one claim more counts, with how many the identity has, also of those
// that the same transaction has made, granted and ended.
func TestQuota(t *testing.T) {
	d := setup(t)
	do := func(most access.Quota, cmd claim.Command) (*claim.Claim, error) {
		d.queues.Now = d.now
		return d.queues.DoFor(access.Caller{Identity: access.Identity{Name: "ann"}, Quota: &most}, cmd)
	}
	must := func(most access.Quota, cmd claim.Command) claim.Claim {
		t.Helper()
		c, err := do(most, cmd)
		if err != nil || c == nil {
			t.Fatalf("%+v: %v", cmd, err)
		}
		return *c
	}
	// limited checks that a command is refused with a quota, which has changed nothing, and carried out with one more.
	limited := func(most access.Quota, cmd claim.Command) claim.Claim {
		t.Helper()
		before := len(d.queues.Transitions())
		var refused *claim.QuotaError
		_, err := do(most, cmd)
		want := claim.QuotaError{Identity: "ann", Status: claim.Active, Limit: most.Held}
		if most.WaitingClaims > 0 {
			want.Status, want.Limit = claim.Waiting, most.WaitingClaims
		}
		if !errors.As(err, &refused) || *refused != want || len(d.queues.Transitions()) != before {
			t.Fatalf("%+v with %+v: %v", cmd, most, err)
		}
		if most.WaitingClaims > 0 {
			return must(access.Quota{WaitingClaims: most.WaitingClaims + 1}, cmd)
		}
		return must(access.Quota{Held: most.Held + 1}, cmd)
	}
	const none = 1 // less than ann has
	d.queues.PutCount("ann", claim.Count{Active: 3, Waiting: 5})
	printer := func(id string) claim.Create {
		return claim.Create{ID: id, Resource: "printer", Owner: id, TTL: time.Minute}
	}
	limited(access.Quota{Held: 3}, printer("a"))
	must(access.Quota{Held: none, WaitingClaims: none}, printer("a")) // a retry
	limited(access.Quota{WaitingClaims: 5}, printer("b"))
	must(access.Quota{Held: 4}, printer("c")) // waits, while as many are held as may be
	must(access.Quota{Held: none, WaitingClaims: none}, claim.Renew{ID: "a", TTL: time.Minute})
	must(access.Quota{Held: none, WaitingClaims: none}, claim.End{ID: "a"}) // grants b
	limited(access.Quota{WaitingClaims: 6}, printer("d"))
	limited(access.Quota{Held: 3}, printer("more than are held"))
	must(access.Quota{}, claim.End{ID: "more than are held"})
	d.queues.Now = d.now
	if _, err := d.queues.DoFor(access.Caller{Identity: access.Identity{Name: "ben"}}, printer("e")); err != nil { // no quota
		t.Fatal(err)
	}
	if got := d.queues.Counts()["ann"]; got != (claim.Count{Active: 4, Waiting: 7}) {
		t.Errorf("ann has %+v", got)
	}
	must(access.Quota{WaitingClaims: none}, printer("d")) // a retry
	for _, id := range []string{"b", "c", "d", "e"} {
		must(access.Quota{}, claim.End{ID: id})
	}
	held := limited(access.Quota{Held: 3}, claim.Acquire{ID: "g", Resource: "printer", Owner: "o", TTL: time.Minute})
	must(access.Quota{Held: none}, claim.Acquire{ID: "h", Resource: "printer", Owner: "o", TTL: time.Minute})
	must(access.Quota{Held: none}, claim.Acquire{ID: "i", Resource: "printer", Owner: "o", TTL: time.Minute, Token: held.Token})
}

// TestQuotaInQuarantine: a claim of what nobody holds waits during a quarantine, and counts so.
func TestQuotaInQuarantine(t *testing.T) {
	d := setup(t)
	d.queues.PutCount("ann", claim.Count{Active: 2, Waiting: 1})
	d.queues.Now = d.now
	d.queues.Now.Quarantine = d.now.Lease.Add(time.Hour)
	create := func(most access.Quota) (*claim.Claim, error) {
		return d.queues.DoFor(access.Caller{Identity: access.Identity{Name: "ann"}, Quota: &most}, claim.Create{ID: "a", Resource: "printer", TTL: time.Minute})
	}
	var refused *claim.QuotaError
	if c, err := create(access.Quota{Held: 3, WaitingClaims: 1}); !errors.As(err, &refused) || *refused != (claim.QuotaError{Identity: "ann", Status: claim.Waiting, Limit: 1}) {
		t.Errorf("beyond the claims that may wait: %+v, %v", c, err)
	}
	if c, err := create(access.Quota{Held: 2, WaitingClaims: 2}); err != nil || c.Status != claim.Waiting {
		t.Errorf("one of the claims that may wait: %+v, %v", c, err)
	}
}
