package committer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/internal/claim"
)

// Metrics is what the committer counts.
type Metrics struct {
	batchSize      prometheus.Histogram
	commitDuration prometheus.Histogram
	failures       prometheus.Counter
	expiries       prometheus.Counter
	outages        prometheus.Counter
	refused        prometheus.Counter
	registerer     prometheus.Registerer
}

// NewMetrics returns metrics that are registered with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "locket_batch_requests", Help: "Requests that went into one transaction.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		commitDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "locket_commit_duration_seconds", Help: "Time from the begin of a transaction to the end of its commit.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "locket_commit_failures_total", Help: "Transactions that failed.",
		}),
		expiries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "locket_expiries_total", Help: "Claims whose lease this server ended because it ran out.",
		}),
		outages: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "locket_database_outages_total", Help: "Times in which the database took no commits, by their begins.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "locket_refused_requests_total", Help: "Requests that were refused because too many others waited, or at the end.",
		}),
		registerer: r,
	}
	r.MustRegister(m.batchSize, m.commitDuration, m.failures, m.expiries, m.outages, m.refused)
	return m
}

func (m *Metrics) observe(requests int, took time.Duration, err error) {
	m.batchSize.Observe(float64(requests))
	m.commitDuration.Observe(took.Seconds())
	if err != nil {
		m.failures.Inc()
	}
}

// Committed implements Listener.
func (m *Metrics) Committed(_ claim.Instant, changes []claim.Transition) {
	for _, change := range changes {
		if change.After.Status == claim.Expired {
			m.expiries.Inc()
		}
	}
}

// Missed implements Listener.
func (m *Metrics) Missed() {}

// watch exports the length of a queue.
func (m *Metrics) watch(q *queue) {
	m.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "locket_queue_requests", Help: "Requests that wait for a transaction.",
	}, func() float64 { return float64(q.len()) }))
}
