package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/upkeep"
)

// TestEndings: an expiry, a revocation and a lost session are a line each, and many are few lines and a count.
func TestEndings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := newEndings(slog.New(slog.NewTextHandler(&log, nil)))
		ends := func(id string, before, after claim.Status, change func(*claim.Claim)) claim.Transition {
			is := claim.Claim{ID: id, Resource: "r " + id, Owner: "o", Status: after}
			was := is
			was.Status = before
			change(&is)
			return claim.Transition{Before: &was, After: &is}
		}
		lost := func(c *claim.Claim) { c.Session, c.Reason = "s", upkeep.SessionExpired }
		e.Committed(claim.Instant{}, []claim.Transition{
			ends("a", claim.Active, claim.Expired, func(*claim.Claim) {}),
			ends("b", claim.Waiting, claim.Revoked, func(c *claim.Claim) { c.Reason, c.EndedBy = "why", "boss" }),
			ends("c", claim.Active, claim.Expired, lost), ends("d", claim.Waiting, claim.Aborted, lost),
			ends("e", claim.Active, claim.Released, func(*claim.Claim) {}), ends("f", claim.Waiting, claim.Active, func(*claim.Claim) {}),
			ends("g", claim.Expired, claim.Expired, func(*claim.Claim) {}), ends("h", claim.Waiting, claim.Withdrawn, func(*claim.Claim) {}),
		})
		e.lines.Flush()
		for _, want := range []string{
			`msg="a claim has expired" resource="r a" owner=o claim=a`, `msg="a claim was revoked" resource="r b" owner=o claim=b reason=why by=boss`,
			`msg="a session was lost" resource="r c" owner=o claim=c session=s claims=2`,
		} {
			if !strings.Contains(log.String(), want+"\n") {
				t.Errorf("nothing of %s", want)
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 3 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
		time.Sleep(time.Hour)
		log.Reset()
		for i := range 10_000 {
			e.Committed(claim.Instant{}, []claim.Transition{ends(fmt.Sprint(i), claim.Active, claim.Expired, func(*claim.Claim) {})})
		}
		time.Sleep(time.Second)
		e.Committed(claim.Instant{}, []claim.Transition{ends("last", claim.Active, claim.Expired, func(*claim.Claim) {})})
		e.lines.Flush()
		if n := strings.Count(log.String(), "\n"); n != endingsBurst+1 || !strings.HasSuffix(log.String(), fmt.Sprintf("claim=last left_out_before=%d\n", 10_000-endingsBurst)) {
			t.Errorf("%d lines", n)
		}
	})
}
