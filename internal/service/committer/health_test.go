package committer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
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
		started := time.Now()
		reply := w.Send(t.Context(), committertest.Lock("slow"))[0]
		time.Sleep(3 * time.Second)
		if h := w.Health(); h.Err != nil || !h.FailingSince.IsZero() || !h.Began.Equal(started) || h.Turned.After(started) {
			t.Errorf("under way: %+v, since %v", h, started)
		}
		goOn()
		committertest.Receive(t, reply)
		synctest.Wait()
		if h := (committer.Health{LastCommit: w.Health().LastCommit, Turned: w.Health().Turned}); w.Health() != h || h.LastCommit.Before(started) {
			t.Errorf("afterwards: %+v", w.Health())
		}
		time.Sleep(time.Minute)
		if idle := time.Since(w.Health().Turned); idle > db.BeatInterval {
			t.Errorf("with nothing to do, it has last turned %v ago", idle)
		}
	})
}

// TestOutagesInLog: a database that takes one commit and refuses the next, again and again, does not fill the log.
func TestOutagesInLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		lines := &lineCounter{Handler: slog.DiscardHandler}
		c := committer.New(w.Store, committer.Config{Timeout: committertest.Timeout, Log: slog.New(lines), Metrics: committer.NewMetrics(prometheus.NewRegistry())})
		committertest.Run(t, c)
		const commits = 1000
		for n := range commits {
			var fault func(context.Context, func(db.Tx) error) error
			if n%2 == 0 {
				fault = func(context.Context, func(db.Tx) error) error { return db.ErrUnavailable }
			}
			w.Store.Set(func(s *committertest.Store) { s.OnTransact = fault })
			if _, err := c.Do(t.Context(), committertest.Lock(fmt.Sprint("l", n))); (err != nil) != (fault != nil) {
				t.Fatalf("commit %d: %v", n, err)
			}
		}
		if n := lines.n.Load(); n < 2 || n > 20 {
			t.Errorf("%d lines for %d commits", n, commits)
		}
	})
}

// TestFailuresInLog: any number of requests at fault, alone and in batches, have few lines in the log.
func TestFailuresInLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		lines := &lineCounter{Handler: slog.DiscardHandler}
		w.Committer = committer.New(w.Store, committer.Config{Timeout: committertest.Timeout, Log: slog.New(lines), Metrics: committer.NewMetrics(prometheus.NewRegistry())})
		committertest.Run(t, w.Committer)
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(context.Context, func(db.Tx) error) error { return errors.New("a fault") }
		})
		const rounds, batch = 100, 8
		for round := range rounds {
			for _, reply := range w.Send(t.Context(), locks(fmt.Sprint(round, "/"), batch)...) {
				if got := committertest.Receive(t, reply); got.Err == nil {
					t.Fatal("a request at fault is carried out")
				}
			}
		}
		if n := lines.n.Load(); n < 2 || n > 250 {
			t.Errorf("%d lines for %d failures", n, rounds*batch)
		}
	})
}

// lineCounter counts what is logged for operators.
type lineCounter struct {
	slog.Handler
	n atomic.Int64
}

func (c *lineCounter) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (c *lineCounter) Handle(context.Context, slog.Record) error {
	c.n.Add(1)
	return nil
}
