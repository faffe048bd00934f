package committer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Metrics has the committer's metrics.
type Metrics struct {
	batchSize      prometheus.Histogram
	commitDuration prometheus.Histogram
	failures       prometheus.Counter
	expiries       prometheus.Counter
	outages        prometheus.Counter
	refused        prometheus.Counter
	waited, held   byStatus
	handedOver     byStatus // by how the claim ended that was waited for
	left, leftPart prometheus.Histogram
	registerer     prometheus.Registerer
}

// byStatus is a histogram for each status of a claim.
type byStatus [claim.Revoked + 1]prometheus.Observer

func newByStatus(r prometheus.Registerer, opts prometheus.HistogramOpts, label string, statuses ...claim.Status) (of byStatus) {
	vec := prometheus.NewHistogramVec(opts, []string{label})
	r.MustRegister(vec)
	for _, s := range statuses {
		of[s] = vec.WithLabelValues(s.String())
	}
	return of
}

// NewMetrics returns metrics that are registered with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		batchSize: prometheus.NewHistogram(metric.Histogram("locket_batch_requests",
			"Requests that went into one transaction.",
			prometheus.ExponentialBuckets(1, 2, 10))),
		commitDuration: prometheus.NewHistogram(metric.Histogram("locket_commit_duration_seconds",
			"Time from the begin of a transaction to the end of its commit. Where a transaction begins during the commit of the one before (the embedded engine), this includes the rest of that commit.",
			prometheus.ExponentialBuckets(0.0005, 2, 15))),
		waited: newByStatus(r, metric.Histogram("locket_claim_wait_seconds",
			"How long claims waited that were not granted at once, by outcome: active, or how they ended.",
			prometheus.ExponentialBuckets(0.001, 4, 14)), "status",
			claim.Active, claim.Expired, claim.Aborted, claim.Withdrawn, claim.Revoked),
		held: newByStatus(r, metric.Histogram("locket_claim_held_seconds",
			"How long claims were held, by how they ended.",
			prometheus.ExponentialBuckets(0.001, 4, 14)), "status",
			claim.Released, claim.Expired, claim.Aborted, claim.Withdrawn, claim.Revoked),
		handedOver: newByStatus(r, metric.Histogram("locket_handover_grant_seconds",
			"Time from the end of a holder to the commit that granted a claim which waited for it, by how the holder ended: "+
				"from the arrival of the request that ended it, or from the end of its lease.",
			prometheus.ExponentialBuckets(0.0005, 2, 15)), "end",
			claim.Released, claim.Expired, claim.Aborted, claim.Withdrawn, claim.Revoked),
		left: prometheus.NewHistogram(metric.Histogram("locket_renewal_left_seconds",
			"Time that leases had left when they were renewed, 0 if they had run out.",
			prometheus.ExponentialBuckets(0.1, 2, 14))),
		leftPart: prometheus.NewHistogram(metric.Histogram("locket_renewal_left_ratio",
			"The same as a part of the TTL.",
			prometheus.LinearBuckets(0.1, 0.1, 9))),
		failures:   metric.Counter("locket_commit_failures_total", "Transactions that failed."),
		expiries:   metric.Counter("locket_expiries_total", "Claims whose lease this server ended because it ran out."),
		outages:    metric.Counter("locket_database_outages_total", "Number of times that the database stopped taking commits."),
		refused:    metric.Counter("locket_refused_requests_total", "Requests that were refused because too many others waited, or at the end."),
		registerer: r,
	}
	r.MustRegister(m.batchSize, m.commitDuration, m.failures, m.expiries, m.outages, m.refused, m.left, m.leftPart)
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
func (m *Metrics) Committed(now claim.Instant, changes []claim.Transition) {
	for _, change := range changes {
		before, after := change.Before, change.After
		if after.Status == claim.Expired {
			m.expiries.Inc()
		}
		if change.StoppedWaiting() {
			m.stoppedWaiting(after, now)
		}
		switch held, was := after.ActiveDuration(now); {
		case !was || before == nil && after.Status == claim.Active:
		case after.Status.Final():
			m.held[after.Status].Observe(held.Seconds())
		case before.Status == claim.Active && before.Session == "":
			m.renewed(before, now)
		}
	}
}

func (m *Metrics) stoppedWaiting(c *claim.Claim, now claim.Instant) {
	became := c.Status
	if c.Token != 0 { // it may have ended since
		became = claim.Active
	}
	m.waited[became].Observe(c.WaitingDuration(now).Seconds())
}

func (m *Metrics) renewed(before *claim.Claim, now claim.Instant) {
	left := before.Remaining(now).Seconds()
	m.left.Observe(left)
	if ttl := before.TTL.Seconds(); ttl > 0 {
		m.leftPart.Observe(min(1, left/ttl))
	}
}

func (m *Metrics) Missed() {}

// watch exports the length of a queue.
func (m *Metrics) watch(q *queue) {
	m.registerer.MustRegister(metric.GaugeFunc("locket_queue_requests", "Requests that wait for a transaction.", func() float64 { return float64(q.len()) }))
}
