package upkeep

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/periodic"
)

const (
	pruneInterval = time.Second
	// pruneStep is how many rows one transaction deletes, and prunePause how long
	// requests have the database to themselves afterwards.
	pruneStep  = 200
	prunePause = 5 * time.Millisecond
	// countInterval is how often the claims are counted, for the limit of the history
	// and for the metrics; fullInterval how often once the limit has been reached.
	countInterval = 15 * time.Second
	fullInterval  = 5 * time.Second
	// resourceAge is for how long a resource without claims keeps its row; walkInterval is
	// how often the janitor looks at all of them, and walkSteps how many steps it does in
	// a row.
	resourceAge  = time.Hour
	walkInterval = time.Minute
	walkSteps    = 50
)

// Janitor deletes finished claims that are older than the retention or beyond the limit,
// and the rows of resources that are no longer used; and it counts what there is.
type Janitor struct {
	store     db.Pruner
	retention time.Duration
	limit     int
	log       *slog.Logger
	claims    *prometheus.GaugeVec // how many there are, by status

	counted time.Time
	cutoff  claim.Time // older than the limit-th newest
	walk    string     // the resource at which the last steps ended
	walked  time.Time  // when the last walk ended
}

// NewJanitor returns a janitor that keeps finished claims for the retention, and at most
// limit of them.
func NewJanitor(store db.Pruner, retention time.Duration, limit int, log *slog.Logger, registerer prometheus.Registerer) *Janitor {
	claims := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "locket_claims", Help: "Claims in the database by status, counted every 15 seconds.",
	}, []string{"status"})
	registerer.MustRegister(claims)
	return &Janitor{store: store, retention: retention, limit: limit, log: log, claims: claims}
}

// Run implements ifrit.Runner.
func (j *Janitor) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return periodic.New(pruneInterval, func(ctx context.Context) {
		if err := j.clean(ctx); err != nil && ctx.Err() == nil {
			j.log.Debug("the janitor cannot work", "error", err)
		}
	}).Run(signals, ready)
}

func (j *Janitor) clean(ctx context.Context) error {
	interval := countInterval
	if j.cutoff != 0 {
		interval = fullInterval
	}
	if time.Since(j.counted) >= interval {
		if err := j.count(ctx); err != nil {
			return err
		}
		j.counted = time.Now()
	}
	now, err := j.store.Now(ctx)
	if err != nil {
		return err
	}
	if err := j.prune(ctx, max(now.Wall.Add(-j.retention), j.cutoff)); err != nil {
		return err
	}
	return j.pruneResources(ctx, now.Wall.Add(-resourceAge))
}

// pruneResources walks over the resources, some steps at a time, and rests when it has seen
// all of them.
func (j *Janitor) pruneResources(ctx context.Context, before claim.Time) (err error) {
	if j.walk == "" && time.Since(j.walked) < walkInterval {
		return nil
	}
	for range walkSteps {
		if j.walk, err = j.store.PruneResources(ctx, j.walk, before, pruneStep); err != nil {
			return err
		}
		if j.walk == "" {
			j.walked = time.Now()
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pause leaves the database to the requests for a moment.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(prunePause):
		return nil
	}
}

func (j *Janitor) count(ctx context.Context) error {
	counts, err := j.store.Count(ctx)
	if err != nil {
		return err
	}
	j.claims.WithLabelValues("waiting").Set(float64(counts.Waiting))
	j.claims.WithLabelValues("active").Set(float64(counts.Active))
	j.claims.WithLabelValues("finished").Set(float64(counts.Finished))
	if counts.Finished <= int64(j.limit) {
		j.cutoff = 0
		return nil
	}
	j.cutoff, err = j.store.HistoryCutoff(ctx, j.limit)
	return err
}

func (j *Janitor) prune(ctx context.Context, before claim.Time) error {
	for {
		n, err := j.store.Prune(ctx, before, pruneStep)
		if err != nil || n < pruneStep {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}
