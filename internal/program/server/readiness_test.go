package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
)

// state is the injected faults of a database.
type state struct {
	ahead   time.Duration // of its clock
	cluster bool          // that is the clock of one of its nodes
	err     error         // of its reads
	health  committer.Health
	busy    bool // it takes commits all the time
}

// fickleDatabase is a database with injected faults.
type fickleDatabase struct {
	mu sync.Mutex
	state
}

func (d *fickleDatabase) ClockState() db.ClockState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return db.ClockState{Cluster: d.cluster}
}

func (d *fickleDatabase) set(change func(*state)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.state)
}

func (d *fickleDatabase) Now(context.Context) (claim.Instant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return claim.Instant{Wall: claim.Time(time.Now().Add(d.ahead).UnixMicro())}, d.err
}

func (d *fickleDatabase) Health() committer.Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy {
		return committer.Health{LastCommit: time.Now()}
	}
	return d.health
}

// TestReadiness: the server is ready while its database answers, takes commits, and has a clock that runs correctly.
// Check returns the reason; each change is logged once and passed on.
func TestReadiness(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*state)
		reason string // "" if the server stays ready
		heals  bool   // the server is ready again after the next reading, as after a step
	}{
		{"nothing", func(*state) {}, "", false},
		{"a little step", func(d *state) { d.ahead = 400 * time.Millisecond }, "", false},
		{"a step forward", func(d *state) { d.ahead = time.Second }, "clock is fast or has stepped forward", true},
		{"a step back", func(d *state) { d.ahead = -time.Second }, "clock is slow or has stepped back", true},
		{"another node of a cluster", func(d *state) { d.ahead, d.cluster = 3*time.Second, true }, "", false},
		{"a node of a cluster that is too far ahead", func(d *state) { d.ahead, d.cluster = db.MaxSkew+time.Second, true }, "clock is fast or has stepped forward", true},
		{"no answer", func(d *state) { d.err = errors.New("at 10.0.0.1") }, "does not answer", false},
		{"no answer to reads alone", func(d *state) { d.err, d.busy = errors.New("all connections are in use"), true }, "", false},
		{"no commits", func(d *state) { d.health.FailingSince = time.Now() }, "takes no commits", false},
		{"a slow commit", func(d *state) { d.health.Began = time.Now().Add(-4 * time.Second) }, "", false},
		{"a commit that hangs", func(d *state) { d.health.Began = time.Now().Add(-6 * time.Second) }, "does not answer a transaction", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, logs, registry := &fickleDatabase{}, &fixtures.Buffer{}, prometheus.NewRegistry()
				r := newReadiness(d, d.Health, slog.New(slog.NewTextHandler(logs, nil)), registry)
				changes := make(chan bool, 10)
				r.onChange = func(ready bool) { changes <- ready }
				process := ifrit.Invoke(periodic.New(readyInterval, r.check))
				defer func() {
					process.Signal(os.Interrupt)
					must(t, <-process.Wait())
				}()
				time.Sleep(3500 * time.Millisecond)
				must(t, r.Check(t.Context()))
				d.set(test.change)
				time.Sleep(time.Second)
				err := r.Check(t.Context())
				if test.reason == "" && err != nil || test.reason != "" && (err == nil || !strings.Contains(err.Error(), test.reason)) {
					t.Fatalf("got %v, want %q", err, test.reason)
				}
				if err != nil && strings.Contains(err.Error(), "10.0.0.1") {
					t.Errorf("the reason tells an address: %v", err)
				}
				if !test.heals {
					d.set(func(s *state) { *s = state{ahead: s.ahead} })
				}
				time.Sleep(5 * time.Second)
				must(t, r.Check(t.Context()))
				var got []bool
				for len(changes) > 0 {
					got = append(got, <-changes)
				}
				want := map[bool]string{true: "[]", false: "[false true]"}[test.reason == ""]
				if fmt.Sprint(got) != want {
					t.Errorf("changes %v, want %s", got, want)
				}
				if n := strings.Count(logs.String(), "not ready"); n != len(got)/2 {
					t.Errorf("logged %s", logs.String())
				}
			})
		})
	}
}

// TestWatchdog: the watchdog is fed while the committer makes progress, whatever the database answers, and not while it
// hangs.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fickleDatabase{}
		r := newReadiness(d, d.Health, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		fed := 0
		r.feed = func() error { fed++; return nil }
		for _, test := range []struct {
			name   string
			health func() committer.Health
			want   int
		}{
			{"before the first commit", func() committer.Health { return committer.Health{} }, 0},
			{"it commits", func() committer.Health { return committer.Health{Turned: time.Now()} }, 1},
			{"commits fail", func() committer.Health { return committer.Health{FailingSince: time.Now(), Turned: time.Now()} }, 1},
			{"a commit hangs", func() committer.Health { return committer.Health{Began: time.Now(), Turned: r.fed} }, 0},
		} {
			d.set(func(s *state) { s.health = test.health() })
			fed = 0
			for range 3 {
				r.check(t.Context())
				time.Sleep(readyInterval)
			}
			if fed != test.want {
				t.Errorf("%s: fed %d times, want %d", test.name, fed, test.want)
			}
		}
	})
}
