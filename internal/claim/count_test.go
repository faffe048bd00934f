package claim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

var errTooMany = errors.New("too many")

// TestAdmit: only what would make one claim more is asked about, with how many the identity has, also of those
// that the same transaction has made, granted and ended.
func TestAdmit(t *testing.T) {
	d := setup(t)
	type question struct {
		status          claim.Status
		active, waiting int
	}
	var asked []question
	most := 100
	do := func(cmd claim.Command) (*claim.Claim, error) {
		d.queues.Now = d.now
		return d.queues.DoFor(claim.Caller{Identity: "ann", Admit: func(s claim.Status, has claim.Count) error {
			asked = append(asked, question{s, has.Active, has.Waiting})
			if has.Waiting >= most {
				return errTooMany
			}
			return nil
		}}, cmd)
	}
	must := func(cmd claim.Command, want ...question) claim.Claim {
		t.Helper()
		asked = nil
		c, err := do(cmd)
		if err != nil || len(asked) != len(want) || len(want) == 1 && asked[0] != want[0] {
			t.Fatalf("%+v: asked %v, %v; want %v", cmd, asked, err, want)
		}
		if c == nil {
			return claim.Claim{}
		}
		return *c
	}
	d.queues.PutCount("ann", claim.Count{Active: 3, Waiting: 5})
	printer := func(id string) claim.Create {
		return claim.Create{ID: id, Resource: "printer", Owner: id, TTL: time.Minute}
	}
	must(printer("a"), question{claim.Active, 3, 5})
	must(printer("a")) // a retry
	must(printer("b"), question{claim.Waiting, 4, 5})
	must(printer("c"), question{claim.Waiting, 4, 6})
	must(claim.Renew{ID: "a", TTL: time.Minute})
	must(claim.End{ID: "a"}) // grants b
	must(printer("d"), question{claim.Waiting, 4, 6})
	d.queues.Now = d.now
	if _, err := d.queues.DoFor(claim.Caller{Identity: "ben"}, printer("e")); err != nil { // no quota
		t.Fatal(err)
	}
	if got := *d.queues.Counts()["ann"]; got != (claim.Count{Active: 4, Waiting: 7}) {
		t.Errorf("ann has %+v", got)
	}
	most = 7
	asked = nil
	before := len(d.queues.Transitions())
	if _, err := do(printer("f")); !errors.Is(err, errTooMany) || d.queues.QueueOf("f") != nil || len(d.queues.Transitions()) != before {
		t.Errorf("beyond the quota: %v", err)
	}
	must(printer("d")) // a retry, although no more are admitted
	for _, id := range []string{"b", "c", "d", "e"} {
		must(claim.End{ID: id})
	}
	held := must(claim.Acquire{ID: "g", Resource: "printer", Owner: "o", TTL: time.Minute}, question{claim.Active, 3, 5})
	most = 0
	must(claim.Acquire{ID: "h", Resource: "printer", Owner: "o", TTL: time.Minute})
	must(claim.Acquire{ID: "i", Resource: "printer", Owner: "o", TTL: time.Minute, Token: held.Token})
}
