package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/committer"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/periodic"
)

// clockedDatabase is a database whose clock and commits a test puts out of order.
type clockedDatabase struct {
	ahead  time.Duration
	err    error
	health committer.Health
	busy   bool // it takes commits all the time
}

func (d *clockedDatabase) Now(context.Context) (claim.Instant, error) {
	return claim.Instant{Wall: claim.Time(time.Now().Add(d.ahead).UnixMicro())}, d.err
}

// TestReadiness: the server is ready while its database answers, takes commits, and has a clock
// that runs as time does. The reason is told, each change is logged once and passed on.
func TestReadiness(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*clockedDatabase)
		reason string // "" if that is no reason
		heals  bool   // by itself: a step is over when it is over
	}{
		{"nothing", func(*clockedDatabase) {}, "", false},
		{"a little step", func(d *clockedDatabase) { d.ahead = 400 * time.Millisecond }, "", false},
		{"a step forward", func(d *clockedDatabase) { d.ahead = time.Second }, "clock is fast or has stepped forward", true},
		{"a step back", func(d *clockedDatabase) { d.ahead = -time.Second }, "clock is slow or has stepped back", true},
		{"no answer", func(d *clockedDatabase) { d.err = errors.New("at 10.0.0.1") }, "does not answer", false},
		{"no answer to reads alone", func(d *clockedDatabase) { d.err, d.busy = errors.New("all connections are in use"), true }, "", false},
		{"no commits", func(d *clockedDatabase) { d.health.FailingSince = time.Now() }, "takes no commits", false},
		{"a slow commit", func(d *clockedDatabase) { d.health.Began = time.Now().Add(-4 * time.Second) }, "", false},
		{"a commit that hangs", func(d *clockedDatabase) { d.health.Began = time.Now().Add(-6 * time.Second) }, "does not answer a transaction", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, logs, registry := &clockedDatabase{}, &fixtures.Buffer{}, prometheus.NewRegistry()
				r := newReadiness(d, func() committer.Health {
					if d.busy {
						return committer.Health{LastCommit: time.Now()}
					}
					return d.health
				}, slog.New(slog.NewTextHandler(logs, nil)), registry)
				var changes []bool
				r.onChange = func(ready bool) { changes = append(changes, ready) }
				process := ifrit.Invoke(periodic.New(readyInterval, r.check))
				defer func() {
					process.Signal(os.Interrupt)
					must(t, <-process.Wait())
				}()
				time.Sleep(3500 * time.Millisecond)
				must(t, r.Check(t.Context()))
				test.change(d)
				time.Sleep(time.Second)
				err := r.Check(t.Context())
				if test.reason == "" && err != nil || test.reason != "" && (err == nil || !strings.Contains(err.Error(), test.reason)) {
					t.Fatalf("got %v, want %q", err, test.reason)
				}
				if err != nil && strings.Contains(err.Error(), "10.0.0.1") {
					t.Errorf("the reason tells an address: %v", err)
				}
				if !test.heals {
					*d = clockedDatabase{ahead: d.ahead}
				}
				time.Sleep(5 * time.Second)
				must(t, r.Check(t.Context()))
				want := map[bool]string{true: "[]", false: "[false true]"}[test.reason == ""]
				if got := fmt.Sprint(changes); got != want {
					t.Errorf("changes %s, want %s", got, want)
				}
				if n := strings.Count(logs.String(), "not ready"); n != len(changes)/2 {
					t.Errorf("logged %s", logs.String())
				}
			})
		})
	}
}
