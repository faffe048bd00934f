package committer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/committer"
	"github.com/locket-service/locket/internal/committer/committertest"
)

// TestHealth: the committer knows since when the database has taken no commits, and since when
// it has not answered.
func TestHealth(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		synctest.Wait()
		if h := w.Health(); h.Err != nil || !h.FailingSince.IsZero() || !h.Began.IsZero() || time.Since(h.LastCommit) > db.BeatInterval {
			t.Fatalf("at first: %+v", h)
		}
		away := errors.Join(errors.New("away"), db.ErrUnavailable)
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(context.Context, func(db.Tx) error) error { return away }
			s.OnResume = func() error { return away }
		})
		failed := time.Now()
		if _, err := w.Do(t.Context(), committertest.Lock("l")); !errors.Is(err, away) {
			t.Fatalf("got %v", err)
		}
		time.Sleep(10 * time.Second)
		if h := w.Health(); !errors.Is(h.Err, away) || !h.FailingSince.Equal(failed) || h.LastCommit.After(failed) || time.Since(h.Turned) > db.BeatInterval {
			t.Errorf("away: %+v, since %v", h, failed)
		}
		if n := w.Metric(t, "locket_database_outages_total"); n != 1 {
			t.Errorf("%v outages", n)
		}
		goOn := w.Store.Hold()
		w.Store.Set(func(s *committertest.Store) { s.OnResume = nil })
		time.Sleep(db.BeatInterval)
		begun := time.Now()
		reply := w.Send(t.Context(), committertest.Lock("slow"))[0]
		time.Sleep(3 * time.Second)
		if h := w.Health(); h.Err != nil || !h.FailingSince.IsZero() || !h.Began.Equal(begun) || h.Turned.After(begun) {
			t.Errorf("under way: %+v, since %v", h, begun)
		}
		goOn()
		committertest.Receive(t, reply)
		synctest.Wait()
		if h := (committer.Health{LastCommit: w.Health().LastCommit, Turned: w.Health().Turned}); w.Health() != h || h.LastCommit.Before(begun) {
			t.Errorf("afterwards: %+v", w.Health())
		}
		time.Sleep(time.Minute)
		if idle := time.Since(w.Health().Turned); idle > db.BeatInterval {
			t.Errorf("with nothing to do, it has last turned %v ago", idle)
		}
	})
}
