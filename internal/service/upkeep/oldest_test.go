package upkeep_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/upkeep"
)

// TestOldestWait: for how long the claim has waited that waits for longest is a metric, which falls when it is granted.
func TestOldestWait(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		committertest.Run(t, upkeep.NewJanitor(w.Store, upkeep.History{Retention: time.Hour, Limit: 1000}, w.Log, w.Registry))
		between := func(least, most float64) {
			t.Helper()
			if got := w.Metric(t, "locket_oldest_wait_seconds"); got < least || got > most {
				t.Errorf("the oldest waits for %g s, want %g to %g", got, least, most)
			}
		}
		w.Must(t, claim.Create{ID: "a", Resource: "r", TTL: time.Hour})
		time.Sleep(time.Minute)
		between(0, 0)
		w.Must(t, claim.Create{ID: "b", Resource: "r", TTL: time.Hour})
		time.Sleep(20 * time.Minute)
		w.Must(t, claim.Create{ID: "c", Resource: "r", TTL: time.Hour})
		time.Sleep(time.Minute)
		between(1260-20, 1260) // counted every 15 s, when the janitor does not rest
		w.Must(t, claim.SetStatus{ID: "a", Status: claim.Released})
		time.Sleep(time.Minute)
		between(120-20, 120)
		w.Must(t, claim.SetStatus{ID: "c", Status: claim.Withdrawn})
		time.Sleep(time.Minute)
		between(0, 0)
	})
}
