package committer_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/service/committer/committertest"
)

// TestStood: time without leases is idle, time without commits is not.
func TestStood(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		check := func(idle, unavailable time.Duration) {
			t.Helper()
			const about = 2 * db.MaxSilence
			if i, u := w.Stood(); (i-idle).Abs() > about || (u-unavailable).Abs() > about {
				t.Errorf("%s idle and %s unavailable, want %s and %s", i, u, idle, unavailable)
			}
		}
		w.Must(t, committertest.Lock("a"))
		time.Sleep(time.Minute)
		check(0, 0)
		w.SetLive(false, w.Grants())
		time.Sleep(time.Hour)
		check(time.Hour, 0)
		w.Must(t, committertest.Lock("b"))
		check(time.Hour, 0)
		w.Store.Set(func(s *committertest.Store) { s.OnBeat = func() error { return db.ErrUnavailable } })
		time.Sleep(10 * time.Minute)
		check(time.Hour, 10*time.Minute)
		w.Store.Set(func(s *committertest.Store) { s.OnBeat = nil })
		time.Sleep(time.Minute)
		check(time.Hour, 10*time.Minute)
		w.SetLive(false, w.Grants())
		time.Sleep(time.Hour)
		check(2*time.Hour, 10*time.Minute)
	})
}
