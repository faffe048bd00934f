// Package outage logs when something begins to fail, and when it works again.
package outage

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
)

// If outages follow each other, the first few are logged, then one in each interval.
const (
	burst    = 5
	interval = 10 * time.Second
)

// Log logs the outages of one thing: the first failure and the first success after it, but not the attempts between.
// If outages follow each other too fast, both lines of some are left out. An outage that lasts is logged after
// interval, so after interval at the latest the last line shows the current state. Only one goroutine may use it.
type Log struct {
	log          *slog.Logger
	level        slog.Level
	begins, ends string
	bound        *rate.Limiter
	failing      bool
	logged       bool // the start of this outage
	leftOut      int  // outages since the last one that was logged
}

// New returns a Log whose lines have these texts: the first of an outage, with its error, at a level, and the last one.
func New(log *slog.Logger, level slog.Level, begins, ends string) *Log {
	return &Log{log: log, level: level, begins: begins, ends: ends, bound: rate.NewLimiter(rate.Every(interval), burst)}
}

// Report notes how an attempt has ended.
func (l *Log) Report(err error) {
	switch {
	case err != nil:
		l.failed(err)
	case l.logged:
		l.log.Info(l.ends)
	case l.failing:
		l.leftOut++
	}
	if err == nil {
		l.failing, l.logged = false, false
	}
}

func (l *Log) failed(err error) {
	l.failing = true
	if l.logged || !l.bound.Allow() {
		l.log.Debug("another attempt has failed: "+l.begins, "error", err)
		return
	}
	attrs := []any{"error", err}
	if l.leftOut > 0 {
		attrs = append(attrs, "left_out_before", l.leftOut)
	}
	l.log.Log(context.Background(), l.level, l.begins, attrs...)
	l.logged, l.leftOut = true, 0
}
