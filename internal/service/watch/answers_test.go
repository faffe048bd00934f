package watch_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
)

// TestAnswersAreMeasured: the time from the grant to the answer is measured, for calls that have waited.
func TestAnswersAreMeasured(t *testing.T) {
	const name = "locket_handover_answer_seconds"
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		feed := follow(t, w)
		for _, id := range []string{"a", "b", "c", "d"} {
			w.Must(t, claim.Create{ID: id, Resource: "r", TTL: time.Hour})
		}
		gets(t, w.Await(t.Context(), "a"), claim.Active) // it did not wait
		replies := w.Await(t.Context(), "d")
		w.Must(t, claim.SetStatus{ID: "d", Status: claim.Withdrawn})
		gets(t, replies, claim.Withdrawn) // it was not granted
		for _, by := range []string{"commit", "feed", "session"} {
			if n, _ := w.Samples(t, name, by); n != 0 {
				t.Errorf("%d answers by %s before any grant", n, by)
			}
		}
		replies = w.Await(t.Context(), "b")
		time.Sleep(time.Minute)
		w.Must(t, claim.SetStatus{ID: "a", Status: claim.Released})
		gets(t, replies, claim.Active)
		if n, sum := w.Samples(t, name, "commit"); n != 1 || sum != 0 {
			t.Errorf("%d answers in %g s by a commit of this server", n, sum)
		}
		replies = w.Await(t.Context(), "c")
		committertest.Transact(t, w.Store.Store, claim.SetStatus{ID: "b", Status: claim.Released})
		time.Sleep(time.Second) // the feed is late
		feed <- feedRead{ids: []string{"c"}}
		gets(t, replies, claim.Active)
		if n, sum := w.Samples(t, name, "feed"); n != 1 || sum < 1 || sum > 1.1 {
			t.Errorf("%d answers in %g s by the feed", n, sum)
		}
	})
}
