package claim_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// A session that has several claims in one queue counts once for it: a claim that is granted with
// nothing left of its lease is not taken from it by the command that granted it.
func TestQueueOfSeveralClaimsOfASession(t *testing.T) {
	d := setup(t)
	d.exclusive("holder")
	next := request("next")
	next.TTL = 0
	d.do(next)
	_, err := d.Do(claim.Attach{Session: claim.Session{ID: "session", TTL: time.Hour}, Server: "server"}, d.now)
	wantErr(t, err, nil)
	for _, id := range []string{"a", "b"} {
		cmd := request(id)
		cmd.Session, cmd.Server = "session", "server"
		d.do(cmd)
	}
	d.after(time.Minute)
	_, err = d.Do(claim.EndSession{ID: "session", OnlyDue: true, Active: claim.Expired, Waiting: claim.Aborted}, d.now)
	wantErr(t, err, nil)
	d.wantStatus(claim.Expired, "holder")
	equal(t, "the holder", d.Holder, "next")
}
