package guard

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/rules/access"
)

// recordedRefusals is how many refusals of an identity get a line of the audit log.
var recordedRefusals = &access.Quota{Requests: 10, Burst: 100}

// summaryInterval is how long after the first refusal without a line a line says how many there were.
const summaryInterval = time.Second

// refusals bounds the audit lines about refusals for each identity, since a caller can cause any number of refusals
// without any cost. It counts the others. All callers without an identity together have the identity "".
type refusals struct {
	lines   *slog.Logger
	limiter *limiter
	leftOut prometheus.Counter

	mu   sync.Mutex
	left map[string]uint64 // refusals without a line by identity, since the last summary
}

func newRefusals(lines *slog.Logger, registerer prometheus.Registerer) *refusals {
	r := &refusals{lines: lines, limiter: newLimiter(), left: make(map[string]uint64), leftOut: metric.Counter("locket_audit_left_out_total", "Number of refusals without a line of their own in the audit log, because their identity had too many.")}
	registerer.MustRegister(r.leftOut)
	return r
}

// admit reports whether to write a line about a refusal of an identity. Otherwise it counts the refusal.
func (r *refusals) admit(identity string) bool {
	u := r.limiter.begin(identity)
	defer u.end()
	if u.take(recordedRefusals) == 0 {
		return true
	}
	r.leftOut.Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.left) == 0 {
		time.AfterFunc(summaryInterval, r.summarize)
	}
	r.left[identity]++
	return false
}

// summarize writes a line for each identity whose refusals were left out.
func (r *refusals) summarize() {
	r.mu.Lock()
	left := r.left
	r.left = make(map[string]uint64)
	r.mu.Unlock()
	for identity, n := range left {
		r.lines.LogAttrs(context.Background(), slog.LevelInfo, "left out", slog.String("identity", identity), slog.Uint64("refusals", n))
	}
}
