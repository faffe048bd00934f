package claim_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// TestEndSessionKeeps: all claims of a session, or only the waiting ones, may end without the session. A session that
// ends is not granted a claim that it gives up itself.
func TestEndSessionKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		cmd               claim.EndSession
		held, waits, next claim.Status // the resulting statuses of the session's claims, and of the claim that waits behind it
		goesOn            bool
	}{
		"all":         {claim.EndSession{Active: claim.Released, Waiting: claim.Withdrawn}, claim.Released, claim.Withdrawn, claim.Active, false},
		"its claims":  {claim.EndSession{Keep: true, Active: claim.Released, Waiting: claim.Withdrawn}, claim.Released, claim.Withdrawn, claim.Active, true},
		"its waiters": {claim.EndSession{Keep: true, Waiting: claim.Revoked}, claim.Active, claim.Revoked, claim.Waiting, true},
	} {
		t.Run(name, func(t *testing.T) {
			qs := claim.NewQueues(claim.Instant{Wall: 1000, Lease: 1000}, 2)
			for _, resource := range []string{"r", "busy"} {
				qs.Put(claim.NewQueue(claim.Row{Resource: resource}, 0, nil))
			}
			do := func(cmd claim.Command) {
				t.Helper()
				if _, err := qs.Do(cmd); err != nil {
					t.Fatal(err)
				}
			}
			do(claim.Attach{Session: claim.Session{ID: "s", TTL: time.Minute}, Server: "here"})
			do(claim.Create{ID: "other", Resource: "busy", TTL: time.Minute})
			do(claim.Create{ID: "held", Resource: "r", Session: "s", Server: "here"})
			do(claim.Create{ID: "waits", Resource: "busy", Session: "s", Server: "here"})
			do(claim.Create{ID: "next", Resource: "r", TTL: time.Minute})
			before := qs.Session("s").Version
			c.cmd.ID, c.cmd.Server = "s", "here"
			do(c.cmd)
			for id, want := range map[string]claim.Status{"held": c.held, "waits": c.waits, "next": c.next} {
				if got := qs.QueueOf(id).Find(id).Status; got != want {
					t.Errorf("%s is %s, want %s", id, got, want)
				}
			}
			if s := qs.Session("s"); (s != nil) != c.goesOn || c.goesOn && (s.Version <= before || s.Server != "here") {
				t.Errorf("the session is %+v", s)
			}
		})
	}
}
