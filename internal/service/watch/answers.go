package watch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Answers measures the time from the grant of a claim that waited to the answer to its caller.
type Answers struct{ commit, feed, session prometheus.Observer }

func newAnswers(registerer prometheus.Registerer) *Answers {
	vec := prometheus.NewHistogramVec(metric.Histogram("locket_handover_answer_seconds",
		"Time from the grant of a claim that waited to the answer of its caller. By how the server that answers heard of the grant: "+
			"a call by its own commit, or by reading the claim after another server's (feed); a session, from when the server knew.",
		prometheus.ExponentialBuckets(0.0001, 2, 16)), []string{"by"})
	registerer.MustRegister(vec)
	return &Answers{vec.WithLabelValues("commit"), vec.WithLabelValues("feed"), vec.WithLabelValues("session")}
}

// answered measures the answer to a call after a commit of this server.
func (a *Answers) answered(u *update) {
	if u.claim.Token != 0 {
		a.commit.Observe(time.Since(u.at).Seconds())
	}
}

// read measures an answer to a call that waited and then read its claim.
func (a *Answers) read(c *claim.Claim, now claim.Instant) {
	if c.Status == claim.Active {
		a.feed.Observe(max(0, now.Wall.Sub(c.Activated)).Seconds())
	}
}

// Delivered measures an event of a session about a grant. since is when this server learned of the grant.
func (a *Answers) Delivered(since time.Time) { a.session.Observe(time.Since(since).Seconds()) }
