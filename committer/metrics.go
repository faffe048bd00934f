package committer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is what the committer and its neighbours count.
type Metrics struct {
	batchSize      prometheus.Histogram
	commitDuration prometheus.Histogram
	failures       prometheus.Counter
	expiries       prometheus.Counter
	claims         *prometheus.GaugeVec
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
		claims: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "locket_claims", Help: "Claims in the database by status, counted every 15 seconds.",
		}, []string{"status"}),
		registerer: r,
	}
	r.MustRegister(m.batchSize, m.commitDuration, m.failures, m.expiries, m.claims)
	return m
}

func (m *Metrics) observe(requests int, took time.Duration, err error) {
	m.batchSize.Observe(float64(requests))
	m.commitDuration.Observe(took.Seconds())
	if err != nil {
		m.failures.Inc()
	}
}

// watch exports the number of calls that wait at a hub.
func (m *Metrics) watch(h *hub) {
	m.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "locket_waiters", Help: "Calls that wait for a claim on this server.",
	}, func() float64 { return float64(h.len()) }))
}
