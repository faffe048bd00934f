package robustness_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestHandoverMetrics: a resource is handed over from a lock to a call over gRPC, to one over REST and to a session, at two servers. Each
// server measures its own hand-offs.
func TestHandoverMetrics(t *testing.T) {
	t.Parallel()
	a, b := pairOfServers(t)
	atA, atB := a.Client(t), b.Client(t)
	harness.Create(t, atA, "k", "first", time.Hour)
	harness.Create(t, atA, "k", "second", time.Hour)
	harness.Create(t, atA, "k", "third", time.Hour)
	s := openAt(t, a, "s")
	s.Lock("k", harness.Waiting)

	// passOn releases a claim while a call waits for the next one at a server.
	passOn := func(from, to string, at *fixtures.Locket, await func(to string) error) {
		t.Helper()
		answers := harness.Later(func() error { return await(to) })
		harness.Eventually(t, func() error { return harness.WantMetric(t, at, "locket_waiters 1") })
		harness.Release(t, atA, from)
		harness.Must(t, harness.Await(t, "the call that waits for "+to, answers))
	}
	overGRPC := func(to string) error {
		_, err := atB.AwaitClaim(context.WithoutCancel(t.Context()), &models.AwaitClaimRequest{Id: to})
		return err
	}
	overREST := func(to string) error {
		request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPatch, "http://"+a.HTTPAddress()+"/v1/claims/"+to+"/", strings.NewReader(`{"status":"active"}`))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Prefer", "wait=60")
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	passOn("first", "second", b, overGRPC)
	passOn("second", "third", a, overREST)
	harness.Release(t, atA, "third")
	s.Hears("k", harness.Waiting, harness.Held)
	for _, line := range []string{
		`locket_handover_grant_seconds_count{end="released"} 3`,
		`locket_claim_wait_seconds_count{status="active"} 3`,
		`locket_claim_held_seconds_count{status="released"} 3`,
		`locket_handover_answer_seconds_count{by="feed"} 0`,
		`locket_handover_answer_seconds_count{by="session"} 1`,
	} {
		harness.Eventually(t, func() error { return harness.WantMetric(t, a, line) })
	}
	harness.Must(t, harness.WantMetric(t, b, `locket_handover_grant_seconds_count{end="released"} 0`))
	// A call that reads its claim for the first time after the grant has not waited.
	measured := func(at *fixtures.Locket, by string, await func(to string) error) {
		t.Helper()
		for n := 0; harness.WantMetric(t, at, fmt.Sprintf("locket_handover_answer_seconds_count{by=%q} 1", by)) != nil; n++ {
			if n == 20 {
				t.Fatalf("calls have waited, and were not measured by %s", by)
			}
			from, to := fmt.Sprint("from-", by, n), fmt.Sprint("to-", by, n)
			harness.Create(t, atA, from, from, time.Minute)
			harness.Create(t, atA, from, to, time.Minute)
			passOn(from, to, at, await)
		}
	}
	measured(a, "commit", overREST)
	measured(b, "feed", overGRPC)
}
