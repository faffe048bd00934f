package committer_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
)

// samples fails the test unless a histogram has n values with a sum, in seconds.
func samples(t *testing.T, w *committertest.World, n int, sum float64, name string, label ...string) {
	t.Helper()
	if gotN, gotSum := w.Samples(t, name, label...); gotN != n || gotSum < sum-1e-6 || gotSum > sum+1e-6 {
		t.Errorf("%s%q: %d values with the sum %g, want %d with %g", name, label, gotN, gotSum, n, sum)
	}
}

// TestDurations: how long claims wait, are held, and have left when they are renewed, by outcome.
func TestDurations(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		create := func(id string) { w.Must(t, claim.Create{ID: id, Resource: "r", TTL: 100 * time.Second}) }
		end := func(id string, s claim.Status) { w.Must(t, claim.SetStatus{ID: id, Status: s}) }
		create("a") // at once: it never waits
		samples(t, w, 0, 0, "locket_claim_wait_seconds", "active")
		create("b")
		create("c")
		time.Sleep(40 * time.Second)
		w.Must(t, claim.Renew{ID: "a", TTL: 200 * time.Second})
		samples(t, w, 1, 60, "locket_renewal_left_seconds")
		samples(t, w, 1, 0.6, "locket_renewal_left_ratio")
		end("c", claim.Withdrawn)
		samples(t, w, 1, 40, "locket_claim_wait_seconds", "withdrawn")
		time.Sleep(10 * time.Second)
		end("a", claim.Revoked)
		samples(t, w, 1, 50, "locket_claim_held_seconds", "revoked")
		samples(t, w, 1, 50, "locket_claim_wait_seconds", "active")
		time.Sleep(150 * time.Second)
		w.Must(t, claim.Renew{ID: "b", TTL: time.Second}) // 50 s late
		samples(t, w, 2, 60, "locket_renewal_left_seconds")
		end("b", claim.Released)
		samples(t, w, 1, 150, "locket_claim_held_seconds", "released")
		samples(t, w, 0, 0, "locket_claim_held_seconds", "expired")
	})
}

// TestSessionsRenewNothing: claims of a session have no lease of their own, and are held and waited for like others.
func TestSessionsRenewNothing(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Session(t, 3)
		w.Must(t, claim.Create{ID: "waits", Resource: "0", TTL: time.Hour})
		time.Sleep(5 * time.Second)
		if _, err := w.Do(t.Context(), closing); err != nil {
			t.Fatal(err)
		}
		samples(t, w, 3, 15, "locket_claim_held_seconds", "released")
		samples(t, w, 1, 5, "locket_claim_wait_seconds", "active")
		samples(t, w, 1, 0, "locket_handover_grant_seconds", "released")
		samples(t, w, 0, 0, "locket_renewal_left_seconds")
	})
}

// TestHandover: it is measured from the arrival of the request that ends a holder, or the end of its lease, and only
// where a claim waited for it.
func TestHandover(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		create := func(id string, mode claim.Units) {
			w.Must(t, claim.Create{ID: id, Resource: "r", Units: mode, TTL: 100 * time.Second})
		}
		const grant = "locket_handover_grant_seconds"
		w.Must(t, claim.Create{ID: "alone", Resource: "alone", TTL: time.Hour})
		w.Must(t, claim.SetStatus{ID: "alone", Status: claim.Released})
		create("a", claim.Exclusive)
		create("b", claim.Shared)
		create("c", claim.Shared)
		create("d", claim.Exclusive)
		time.Sleep(time.Second)
		samples(t, w, 0, 0, grant, "released")

		goOn := w.Store.Hold() // the database takes 3 s for a transaction
		first := w.Send(t.Context(), committertest.Lock("first"))
		time.Sleep(time.Second)
		release := w.Send(t.Context(), claim.SetStatus{ID: "a", Status: claim.Released})
		time.Sleep(3 * time.Second)
		goOn()
		committertest.Check(t, committertest.Receive(t, first[0]).Err)
		committertest.Check(t, committertest.Receive(t, release[0]).Err)
		samples(t, w, 2, 6, grant, "released") // b and c have waited for a for 3 s

		w.Must(t, claim.SetStatus{ID: "b", Status: claim.Revoked}) // c still shares
		samples(t, w, 0, 0, grant, "revoked")
		time.Sleep(107 * time.Second) // without a sweeper nobody looks
		w.Must(t, claim.Expire{Resources: []string{"r"}})
		samples(t, w, 1, 7, grant, "expired")
	})
}

// TestNativeHistograms: the histograms are native ones too, with a bound.
func TestNativeHistograms(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Create{ID: "a", Resource: "r", TTL: time.Hour})
		families, err := w.Registry.Gather()
		committertest.Check(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetType() == dto.MetricType_HISTOGRAM && (m.GetHistogram().Schema == nil || len(m.GetHistogram().GetBucket()) == 0) {
					t.Errorf("%s is not both: %v", f.GetName(), m)
				}
			}
		}
	})
}

// BenchmarkMetrics measures the cost of metrics for each change of a commit, for claims that have waited for one
// another.
func BenchmarkMetrics(b *testing.B) {
	now := claim.Instant{Wall: 1e12, Lease: 1e12}
	before := claim.Claim{ID: "a", Resource: "r", TTL: time.Minute, Status: claim.Active, Created: 1e11, Activated: 2e11, Token: 1, Deadline: 1e12 + 1e7}
	waiting, active, ended := before, before, before
	waiting.Status, waiting.Token, waiting.Activated = claim.Waiting, 0, 0
	ended.Status, ended.Finished = claim.Released, 9e11
	for name, change := range map[string]claim.Transition{
		"renewal": {Before: &before, After: &active}, "grant": {Before: &waiting, After: &active}, "end": {Before: &active, After: &ended},
	} {
		b.Run(name, func(b *testing.B) {
			m, changes := committer.NewMetrics(prometheus.NewRegistry()), []claim.Transition{change}
			b.ReportAllocs()
			for b.Loop() {
				m.Committed(now, changes)
			}
		})
	}
}
