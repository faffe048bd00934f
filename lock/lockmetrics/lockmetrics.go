// Package lockmetrics has Prometheus metrics of package lock. Package lock itself does not import Prometheus.
package lockmetrics

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// Collector is a prometheus.Collector of all clients, sessions and runners with its Observer. Session.Lock does not
// wait, so its locks are in no metric of waits.
type Collector struct {
	waits                      prometheus.Gauge
	waited                     *prometheus.HistogramVec
	lost                       *prometheus.CounterVec
	reconnects, renewalsFailed prometheus.Counter
	held, trustLeft            *prometheus.Desc

	mu    sync.Mutex
	holds map[*lock.Hold]bool // none is missing that is held
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a collector. Register it.
func New() *Collector {
	return &Collector{
		waits: metric.Gauge("locket_client_waits", "How many goroutines and runners wait for a lock."),
		waited: prometheus.NewHistogramVec(
			metric.Histogram("locket_client_wait_seconds", "How long a wait for a lock has taken, by its outcome.", prometheus.ExponentialBuckets(0.001, 4, 12)),
			[]string{"outcome"}),
		lost:           metric.CounterVec("locket_client_lost_total", "Locks that have ended otherwise than by their release, by the reason.", []string{"reason"}),
		reconnects:     metric.Counter("locket_client_session_reconnects_total", "How often a session has resumed over another stream."),
		renewalsFailed: metric.Counter("locket_client_renewals_failed_total", "Attempts that have failed to renew a lease, or to open, renew or resume a session."),
		held:           prometheus.NewDesc("locket_client_held", "How many locks are held at this moment.", nil, nil),
		trustLeft: prometheus.NewDesc("locket_client_trust_left_seconds",
			"For how long from now on all locks that are held are still held if nothing is renewed: the least of their trust windows. Missing while nothing is held.", nil, nil),
		holds: make(map[*lock.Hold]bool),
	}
}

// Observer returns the observer to pass to lock.WithObserver.
func (c *Collector) Observer() lock.Observer {
	return lock.Observer{WaitBegins: c.waitBegins, SessionHeld: c.hold, SessionResumed: c.reconnects.Inc, RenewalFailed: c.renewalsFailed.Inc}
}

func (c *Collector) waitBegins(ctx context.Context, _, _ string) (context.Context, func(*lock.Hold, error)) {
	started := time.Now()
	c.waits.Inc()
	return ctx, func(hold *lock.Hold, err error) {
		c.waits.Dec()
		c.waited.WithLabelValues(outcomeOf(err)).Observe(time.Since(started).Seconds())
		if err == nil {
			c.hold(hold)
		}
	}
}

// hold counts a hold until it ends.
func (c *Collector) hold(hold *lock.Hold) {
	c.mu.Lock()
	c.holds[hold] = true
	c.mu.Unlock()
	context.AfterFunc(hold.Context(), func() {
		c.mu.Lock()
		delete(c.holds, hold)
		c.mu.Unlock()
		if err := hold.Err(); !errors.Is(err, lock.ErrReleased) {
			c.lost.WithLabelValues(reasonOf(err)).Inc()
		}
	})
}

func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, part := range c.parts() {
		part.Describe(descs)
	}
	descs <- c.held
	descs <- c.trustLeft
}

// Collect implements prometheus.Collector. It checks the holds themselves, so it is right even directly after a pause.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, part := range c.parts() {
		part.Collect(metrics)
	}
	c.mu.Lock()
	holds := slices.Collect(maps.Keys(c.holds))
	c.mu.Unlock()
	held, least := 0, time.Duration(0)
	for _, hold := range holds {
		left := time.Until(hold.Deadline())
		if hold.Err() != nil {
			continue
		}
		if held++; held == 1 || left < least {
			least = left
		}
	}
	metrics <- prometheus.MustNewConstMetric(c.held, prometheus.GaugeValue, float64(held))
	if held > 0 {
		metrics <- prometheus.MustNewConstMetric(c.trustLeft, prometheus.GaugeValue, max(0, least.Seconds()))
	}
}

func (c *Collector) parts() []prometheus.Collector {
	return []prometheus.Collector{c.waits, c.waited, c.lost, c.reconnects, c.renewalsFailed}
}

// outcomeOf returns how a wait has ended.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "held"
	case errors.Is(err, models.ErrLockCollision):
		return "collision" // of a try
	case models.ReasonOf(err) == models.ReasonDeadlock:
		return "deadlock"
	case errors.Is(err, lock.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return "failed"
	}
}

// reasonOf returns why a lock was lost: "ended" is an end that the servers do not explain.
func reasonOf(err error) string {
	var ended models.ClaimEndedError
	switch {
	case errors.Is(err, lock.ErrTimeUp):
		return "expired"
	case errors.Is(err, lock.ErrSessionEnded):
		return "session_ended"
	case errors.Is(err, lock.ErrClosed):
		return "closed"
	case errors.As(err, &ended) && ended.Status != models.Status_STATUS_UNSPECIFIED:
		return strings.ToLower(strings.TrimPrefix(ended.Status.String(), "STATUS_"))
	default:
		return "ended"
	}
}
