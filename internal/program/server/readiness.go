package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
)

const (
	// readyInterval is how often readiness is checked.
	readyInterval = time.Second
	// clockTimeout limits how long the database may take to return its time.
	clockTimeout = 2 * time.Second
	// slowCommit is how long a transaction may run before the server is not ready.
	slowCommit = 5 * time.Second
	// maxDrift is by how much the database's clock may differ from this machine's monotonic clock over one interval. A
	// larger difference is a step. On a cluster db.MaxSkew is added: the next reading may be of another node's clock.
	maxDrift = db.MaxSilence
)

var errEnding = errors.New("the server is shutting down")

// readiness knows whether this server can answer requests now: whether the database answers and takes commits, and
// whether its clock runs correctly. It is checked periodically; each change is logged and passed on.
type readiness struct {
	logSteps  func() // of the database's clock
	clocks    db.Clocks
	committer func() committer.Health
	log       *slog.Logger
	gauge     prometheus.Gauge
	files     prometheus.Gauge
	// database returns the warnings of a database that takes commits.
	database func() []string
	// bad describes the settings whose files cannot be used in their current state, or whose certificates end soon.
	bad func() []string
	// audit returns why the audit log cannot be written; auditRequired reports whether changes are refused then.
	audit         func() error
	auditRequired bool
	// onChange is called with each change.
	onChange func(ready bool)
	// feed feeds the watchdog of the service manager.
	feed func() error

	mu     sync.Mutex
	clock  error // what is wrong with the database's clock
	ending bool  // the server is shutting down

	// The following fields belong to check.
	last reading
	was  string    // the reason that was logged last, "" for ready
	fed  time.Time // when the committer last made progress, at the last feed
}

// reading is a time of the database's clock, read between two times of this machine's clock.
type reading struct {
	wall          claim.Time
	before, after time.Time
}

func newReadiness(clocks db.Clocks, health func() committer.Health, log *slog.Logger, registry prometheus.Registerer) *readiness {
	r := &readiness{clocks: clocks, committer: health, log: log, onChange: func(bool) {}, feed: func() error { return nil }, bad: func() []string { return nil }, database: func() []string { return nil }, audit: func() error { return nil }}
	r.gauge = metric.Gauge("locket_ready", "1 if this server can answer requests, else 0; the log and /readyz say why.")
	r.gauge.Set(1)
	r.files = metric.Gauge("locket_invalid_files", "Number of files of settings that cannot be used as they are now (invalid, not readable, or hanging), or whose certificate ends soon; /readyz and the log say which.")
	r.logSteps = watchClocks(clocks, log, registry)
	registry.MustRegister(r.gauge, r.files, metric.GaugeFunc("locket_database_warnings", "Number of problems of a database that accepts commits; /readyz names them.", func() float64 { return float64(len(r.database())) }), metric.GaugeFunc("locket_last_commit_age_seconds", "Time since the database last took a commit or a beat of this server.", func() float64 { return time.Since(health().LastCommit).Seconds() }))
	return r
}

// Check is an ops.Ready. It does not access the database.
func (r *readiness) Check(context.Context) error {
	r.mu.Lock()
	clock, ending := r.clock, r.ending
	r.mu.Unlock()
	h := r.committer()
	switch {
	case ending:
		return errEnding
	case !h.FailingSince.IsZero():
		return errors.New("the database takes no commits") // the log has the reason, which may contain addresses
	case !h.Began.IsZero() && time.Since(h.Began) > slowCommit:
		return errors.New("the database does not answer a transaction")
	case r.auditRequired && r.audit() != nil:
		return errors.New("the audit log cannot be written, and is required")
	}
	return clock
}

// warnings returns the problems of a ready server, for example files that are invalid while their last valid contents
// are in use.
func (r *readiness) warnings() (warnings []string) {
	warnings = append(warnings, r.bad()...)
	if r.audit() != nil {
		warnings = append(warnings, "--audit-log: it cannot be written; lines that find no room are lost")
	}
	return append(warnings, r.database()...)
}

// end notes that the server is shutting down.
func (r *readiness) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = true
}

// check reads the database's clock, and passes on a change of readiness.
func (r *readiness) check(ctx context.Context) {
	clock := r.readClock(ctx)
	r.files.Set(float64(len(r.bad())))
	r.logSteps()
	if ctx.Err() != nil {
		return // the end
	}
	r.feedWatchdog()
	r.mu.Lock()
	r.clock = clock
	r.mu.Unlock()
	reason := ""
	switch err := r.Check(ctx); {
	case errors.Is(err, errEnding):
		return // the one who stops the server knows
	case err != nil:
		reason = err.Error()
	}
	if reason == r.was {
		return
	}
	if reason == "" {
		r.log.Info("ready again")
		r.gauge.Set(1)
	} else {
		r.log.Warn("not ready", "reason", reason)
		r.gauge.Set(0)
	}
	if (reason == "") != (r.was == "") {
		r.onChange(reason == "")
	}
	r.was = reason
}

// feedWatchdog feeds the watchdog if the committer has made progress since the last time. An unavailable database does
// not stop that: callers get answers, and a restart would not help. If the committer or this check hangs, a restart
// helps.
func (r *readiness) feedWatchdog() {
	turned := r.committer().Turned
	if !turned.After(r.fed) {
		return
	}
	r.fed = turned
	if err := r.feed(); err != nil {
		r.log.Warn("the watchdog of the service manager cannot be fed", "error", err)
	}
}

// readClock compares the time that has passed on the database's clock since the last reading with the time of this
// machine, which is known within two bounds because an answer takes time.
func (r *readiness) readClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	now := reading{before: time.Now()}
	instant, err := r.clocks.Now(ctx)
	if err != nil {
		r.log.Debug("the database does not say its time", "error", err)
		if time.Since(r.committer().LastCommit) < 2*readyInterval {
			return nil // it takes commits, so only its connections for reads are busy
		}
		return errors.New("the database does not answer")
	}
	now.wall, now.after = instant.Wall, time.Now()
	last := r.last
	r.last = now
	if last.wall == 0 {
		return nil
	}
	drift := maxDrift
	if r.clocks.ClockState().Cluster {
		drift += db.MaxSkew
	}
	passed := now.wall.Sub(last.wall)
	if least := now.before.Sub(last.after); passed < least-drift {
		return fmt.Errorf("the database's clock is slow or has stepped back: %v in %v", passed, least)
	}
	if most := now.after.Sub(last.before); passed > most+drift {
		return fmt.Errorf("the database's clock is fast or has stepped forward: %v in %v", passed, most)
	}
	return nil
}

// watchClocks registers the metrics of the clocks, and returns a function that logs the steps of the database's clock
// since its last call.
func watchClocks(clocks db.Clocks, log *slog.Logger, registry prometheus.Registerer) (logSteps func()) {
	gauge := func(name, help string, value func(db.ClockState) float64) prometheus.Collector {
		return metric.GaugeFunc(name, help, func() float64 { return value(clocks.ClockState()) })
	}
	registry.MustRegister(
		gauge("locket_clock_offset_seconds", "How much later this server's time is than its database's clock: that has stepped back, or lags behind others of a cluster.",
			func(s db.ClockState) float64 { return s.Offset.Seconds() }),
		gauge("locket_clock_skew_seconds", "How much later than its deadline a lease is due, because the clocks of a cluster differ, or the database's has stepped.",
			func(s db.ClockState) float64 { return s.Skew.Seconds() }),
		gauge("locket_outage_seconds", "The sum of all time that counts against no lease: outages, and time without leases.",
			func(s db.ClockState) float64 { return s.Outage.Seconds() }),
		gauge("locket_lease_time_seconds", "Lease time: the database's time less outages, since the Unix epoch.",
			func(s db.ClockState) float64 { return float64(s.Lease) / 1e6 }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "locket_clock_steps_total", Help: "Steps of the database's clock that this server has seen."},
			func() float64 { return float64(clocks.ClockState().Steps) }),
	)
	seen := 0
	return func() {
		if state := clocks.ClockState(); state.Steps != seen {
			seen = state.Steps
			log.Warn("the clock of the database has stepped; leases do not end early by it", "steps", state.Steps, "offset", state.Offset)
		}
	}
}
