package replica_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
)

// serve runs a committer on a store, until stop is called.
func serve(t *testing.T, s *replica.Store) (c *committer.Committer, stop func()) {
	t.Helper()
	c = committer.New(s, committer.Config{
		Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler), Metrics: committer.NewMetrics(prometheus.NewRegistry()),
	})
	signals, ready, ended := make(chan os.Signal), make(chan struct{}), make(chan error, 1)
	go func() { ended <- c.Run(signals, ready) }()
	<-ready
	return c, func() {
		signals <- os.Interrupt
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestCommitsBesideLookUp: a history that does not answer holds up the commands that need it, and no others.
func TestCommitsBesideLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, filepath.Join(t.TempDir(), "data"))
		c, stop := serve(t, s)
		defer stop()
		do := func(cmd claim.Command) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if _, err := c.Do(ctx, cmd); err != nil {
				t.Errorf("%T: %v", cmd, err)
			}
		}
		do(claim.Create{ID: "held", Resource: "r", TTL: 2 * time.Second})
		gate := make(chan struct{})
		s.OnFind(func(string) { <-gate })
		late, submitted := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := c.Do(context.Background(), create(1))
			late <- err
		}()
		synctest.Wait()
		box := inbox.New(1, nil)
		if err := c.Submit(t.Context(), create(2), box, func(_ committer.Result, err error) { submitted <- err }); err != nil {
			t.Error(err)
		}
		for range 4 {
			time.Sleep(time.Second)
			do(claim.Renew{ID: "held", TTL: 2 * time.Second})
			do(claim.Acquire{ID: "lock", Resource: "l", Owner: "o", TTL: 2 * time.Second})
			do(claim.Release{Resource: "l", Owner: "o"})
		}
		do(claim.Create{ID: "new", New: true, Resource: "n", TTL: time.Hour})
		if outage := s.ClockState().Outage; outage != 0 {
			t.Errorf("lease time stood still for %s", outage)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Do(ctx, create(3)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller who waits behind a look-up that hangs: %v", err)
		}
		if err := <-submitted; !errors.Is(err, db.ErrUnavailable) { // after 5 s
			t.Errorf("a command behind one that hangs: %v", err)
		}
		close(gate)
		if err := <-late; err != nil {
			t.Errorf("when the history answers: %v", err)
		}
		if n := s.Kept(); n != 0 {
			t.Errorf("%d ids are kept for nobody", n)
		}
	})
}

// TestKnownAhead: data read ahead stays right, whatever happens to the claim until its command is decided, which then
// reads no file.
func TestKnownAhead(t *testing.T) {
	end := func(t *testing.T, s *replica.Store) {
		dbtest.Do(t, s, claim.End{ID: "1"})
		if err := s.WriteHistory(); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		before, after func(*testing.T, *replica.Store)
		want          claim.Status
	}{
		"new": {want: claim.Active},
		"made and ended since": {
			after: func(t *testing.T, s *replica.Store) { dbtest.Do(t, s, create(1)); end(t, s) },
			want:  claim.Released,
		},
		"ended since": {
			before: func(t *testing.T, s *replica.Store) { dbtest.Do(t, s, create(1)) },
			after:  end,
			want:   claim.Released,
		},
		"written since": {
			before: func(t *testing.T, s *replica.Store) { dbtest.Do(t, s, create(1), claim.End{ID: "1"}) },
			after:  end,
			want:   claim.Released,
		},
		"in the history": {
			before: func(t *testing.T, s *replica.Store) { dbtest.Do(t, s, create(1)); end(t, s) },
			want:   claim.Released,
		},
	} {
		t.Run(name, func(t *testing.T) {
			options := small
			options.Delay = time.Hour // the history is written here alone
			s, err := replica.OpenWith(filepath.Join(t.TempDir(), "data"), options)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			if c.before != nil {
				c.before(t, s)
			}
			read, release := s.Prepare(create(1))
			if read != nil {
				if err := read(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if c.after != nil {
				c.after(t, s)
			}
			s.OnFind(func(id string) { t.Errorf("%s is looked up in the transaction", id) })
			if got := dbtest.Do(t, s, create(1))[0]; got.Status != c.want {
				t.Errorf("the claim is %s, want %s", got.Status, c.want)
			}
			release()
			if n := s.Kept(); n != 0 {
				t.Errorf("%d ids are kept for nobody", n)
			}
		})
	}
}
