package replica_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/upkeep"
)

// wallClock is a clock of the wall that may be wrong.
type wallClock struct{ wrong atomic.Int64 }

func (c *wallClock) set(by time.Duration) { c.wrong.Store(int64(by)) }

func (c *wallClock) now() time.Time { return time.Now().Add(time.Duration(c.wrong.Load())) }

// atClock is onDisk with a clock of the wall.
func atClock(t testing.TB, folder string, d *disktest.Disk, clock *wallClock) *replica.Store {
	t.Helper()
	options := small
	options.Disk, options.Wall = d, clock.now
	s, err := replica.OpenWith(folder, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWallClockSteps: steps of the machine's clock by more than a day, while a server runs and while it is down, end no
// lease early or late, and do not age recent history: a repeated request finds the claim that it made, and is granted
// nothing new. The janitor works all the time.
func TestWallClockSteps(t *testing.T) {
	const day, ttl = 25 * time.Hour, 10 * time.Minute
	for name, c := range map[string]struct {
		step    time.Duration
		restart bool
	}{
		"forward": {step: day}, "back": {step: -day}, "forward while down": {day, true}, "back while down": {-day, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				folder, d, clock := filepath.Join(t.TempDir(), "data"), disktest.New(), new(wallClock)
				s := atClock(t, folder, d, clock)
				stop := clean(t, s)
				beatFor(t, s, time.Hour) // the janitor knows the past
				once := claim.Create{ID: "once", Resource: "q", TTL: time.Hour}
				dbtest.Do(t, s, once, claim.End{ID: "once"},
					claim.Create{ID: "held", Resource: "r", TTL: ttl}, claim.Create{ID: "next", Resource: "r", TTL: time.Hour})
				token := get(t, s, "held").Token
				if c.restart {
					stop()
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					clock.set(c.step)
					d = d.Kill()
					s = atClock(t, folder, d, clock)
					stop = clean(t, s)
				}
				clock.set(c.step)
				beatFor(t, s, ttl-time.Second)
				if due, err := s.Due(t.Context(), db.DueQuery{Resources: 10}); err != nil || len(due.Resources) > 0 {
					t.Errorf("%q are due early (%v)", due.Resources, err)
				}
				if again := dbtest.Do(t, s, once)[0]; again.Status != claim.Released {
					t.Errorf("a request that is repeated has a claim that is %s", again.Status)
				}
				beatFor(t, s, time.Second)
				if due, err := s.Due(t.Context(), db.DueQuery{Resources: 10}); err != nil || len(due.Resources) != 1 {
					t.Errorf("%q are due when the lease is over (%v)", due.Resources, err)
				}
				dbtest.Do(t, s, claim.Expire{Resources: []string{"r"}})
				if next := get(t, s, "next"); next.Status != claim.Active || next.Token <= token {
					t.Errorf("the next is %s with token %d, after %d", next.Status, next.Token, token)
				}
				stop()
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func get(t *testing.T, s db.Store, id string) claim.Claim {
	t.Helper()
	c, _, _, err := s.Get(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// clean has a janitor delete the history of a store that is older than a day, until stop is called.
func clean(t *testing.T, s *replica.Store) (stop func()) {
	t.Helper()
	history := upkeep.History{Retention: 24 * time.Hour, Limit: 1000, Minimum: 20 * time.Minute}
	janitor := upkeep.NewJanitor(s, history, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	signals, ready, ended := make(chan os.Signal), make(chan struct{}), make(chan error, 1)
	go func() { ended <- janitor.Run(signals, ready) }()
	<-ready
	return func() {
		signals <- os.Interrupt
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestLeaseTimeElsewhere: while commits are slow, a server that does not decide tells nobody of more lease time than
// is left.
func TestLeaseTimeElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.stop()
		decider := c.add()
		dbtest.Do(t, decider.store, claim.Acquire{ID: "held", Resource: "r", Owner: "o", TTL: time.Hour})
		other := c.add()
		slow := func(op string) error {
			if op == "append" {
				time.Sleep(400 * time.Millisecond) // real time: none, clusters run in bubbles
			}
			return latency(op)
		}
		decider.log.Fail(slow, nil)
		var beating sync.WaitGroup
		defer beating.Wait()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for _, s := range c.servers {
			beating.Go(func() {
				for ctx.Err() == nil {
					_ = s.store.Beat(ctx, false)
					time.Sleep(db.BeatInterval) // real time: none, clusters run in bubbles
				}
			})
		}
		beating.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				dbtest.Do(t, decider.store, claim.Acquire{ID: fmt.Sprint(n), Resource: fmt.Sprint(n), Owner: "o", TTL: time.Hour})
			}
		})
		for range 100 {
			time.Sleep(37 * time.Millisecond) // real time: none, clusters run in bubbles
			before := leaseTime(t, decider.store)
			if _, _, now, err := other.store.Get(t.Context(), "held", 0); err != nil || now.Lease < before {
				t.Errorf("a read finds %v more than is left (%v)", before.Sub(now.Lease), err)
			}
		}
	})
}
