package robustness_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestHandoverMetrics: a resource is handed over from a lock to a call over gRPC, to one over REST and to a session, at two servers. Each
// server measures its own hand-overs.
func TestHandoverMetrics(t *testing.T) {
	t.Parallel()
	a, b := pairOfServers(t)
	atA, atB := a.Client(t), b.Client(t)
	harness.Create(t, atA, "k", "first", time.Hour)
	harness.Create(t, atA, "k", "second", time.Hour)
	harness.Create(t, atA, "k", "third", time.Hour)
	s := openAt(t, a, "s")
	s.Lock("k", harness.Waiting)

	passOn := func(from, to string) {
		answers := harness.Later(func() error {
			_, err := atB.AwaitClaim(context.WithoutCancel(t.Context()), &models.AwaitClaimRequest{Id: to})
			return err
		})
		harness.Eventually(t, func() error { return harness.WantMetric(t, b, "locket_waiters 1") })
		harness.Release(t, atA, from)
		harness.Must(t, harness.Await(t, "the call at the other server", answers))
	}
	passOn("first", "second")

	answers := harness.Later(func() error {
		request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPatch, "http://"+a.HTTPAddress()+"/v1/claims/third/", strings.NewReader(`{"status":"active"}`))
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
	})
	harness.Eventually(t, func() error { return harness.WantMetric(t, a, "locket_waiters 1") })
	harness.Release(t, atA, "second")
	harness.Must(t, harness.Await(t, "the call over REST", answers))

	harness.Release(t, atA, "third")
	s.Hears("k", harness.Waiting, harness.Held)
	for _, line := range []string{
		`locket_handover_grant_seconds_count{end="released"} 3`,
		`locket_claim_wait_seconds_count{status="active"} 3`,
		`locket_claim_held_seconds_count{status="released"} 3`,
		`locket_handover_answer_seconds_count{by="commit"} 1`,
		`locket_handover_answer_seconds_count{by="feed"} 0`,
		`locket_handover_answer_seconds_count{by="session"} 1`,
	} {
		harness.Eventually(t, func() error { return harness.WantMetric(t, a, line) })
	}
	harness.Must(t, harness.WantMetric(t, b, `locket_handover_grant_seconds_count{end="released"} 0`))
	// A call that reads its claim for the first time after the grant has not waited.
	for n := 0; harness.WantMetric(t, b, `locket_handover_answer_seconds_count{by="feed"} 1`) != nil; n++ {
		if n == 20 {
			t.Fatal("calls at the other server have waited, and were not measured")
		}
		from, to := fmt.Sprint("from", n), fmt.Sprint("to", n)
		harness.Create(t, atA, from, from, time.Minute)
		harness.Create(t, atA, from, to, time.Minute)
		passOn(from, to)
	}
}
