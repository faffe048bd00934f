package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	pruneInterval = time.Second
	// restInterval is the pause of the janitor when there is nothing to delete.
	restInterval = 10 * time.Second
	// pruneStep is how many rows one transaction deletes, and prunePause the pause after it.
	pruneStep  = 200
	prunePause = 5 * time.Millisecond
	// countInterval is how often the claims are counted, for the limit of the history
	// and for the metrics; fullInterval how often once the limit has been reached.
	countInterval = 15 * time.Second
	fullInterval  = 5 * time.Second
	// resourceAge is how long the row of a resource without claims is kept. The janitor visits all resources once in
	// walkInterval, and pauses after walkSteps steps, or after hasteSteps once the walk has lasted for longWalk:
	// otherwise resources could be created faster than it visits them.
	resourceAge  = time.Hour
	walkInterval = time.Minute
	walkSteps    = 50
	longWalk     = 10 * time.Minute
	hasteSteps   = 500
	// countTimeout bounds counting, and stepTimeout every other request of the janitor to the database.
	countTimeout = 10 * time.Second
	stepTimeout  = 15 * time.Second
)

// History says how many ended claims are kept, and for how long.
type History struct {
	// Retention is how long they are kept, and Limit how many of them.
	Retention time.Duration
	Limit     int
	// Minimum is how long they are kept at least, whatever their number and whatever steps the database's clock
	// makes, unless the Retention is shorter. A request that is repeated within this time finds the claim of the
	// first attempt.
	Minimum time.Duration
}

// before returns the cutoff: claims that ended earlier are deleted. claims beyond the limit ended before cutoff; 0
// if there are none.
func (h History) before(now, cutoff claim.Time) claim.Time {
	return max(now.Add(-h.Retention), min(cutoff, now.Add(-h.Minimum)))
}

// Janitor deletes the ended claims that History does not keep, and the rows of resources that are no longer used. It
// also counts claims, for the limit and the metrics.
type Janitor struct {
	store   db.Pruner
	history History
	log     *slog.Logger
	claims  *prometheus.GaugeVec // how many there are, by status
	oldest  prometheus.Gauge     // for how long the claim has waited that has waited for longest

	rested time.Time // when there was nothing to delete
	ended  *db.Past  // tells which claims ended before the minimum age
	unused *db.Past  // tells which resources have not changed for resourceAge
	// resumed says that the two know of the readings before the start of this server.
	resumed bool

	census  atomic.Pointer[db.Census] // the last one, nil before the first
	counted time.Time
	cutoff  claim.Time // older than the limit-th newest
	walk    string     // the resource where the last steps ended
	began   time.Time  // when this walk did
	walked  time.Time  // when the last walk ended
}

// NewJanitor returns a janitor of a store.
func NewJanitor(store db.Pruner, history History, log *slog.Logger, registerer prometheus.Registerer) *Janitor {
	claims := metric.GaugeVec("locket_claims", "Claims in the database by status, counted every 15 seconds.", []string{"status"})
	oldest := metric.Gauge("locket_oldest_wait_seconds", "Time that the claim has waited which waits for longest, 0 if none waits, as of when the claims were counted.")
	registerer.MustRegister(claims, oldest)
	return &Janitor{
		store: store, history: history, log: log, claims: claims, oldest: oldest,
		ended: db.NewPast(min(history.Minimum, history.Retention)), unused: db.NewPast(resourceAge),
	}
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
	if time.Since(j.rested) < restInterval {
		return nil
	}
	if err := j.count(ctx); err != nil && ctx.Err() == nil {
		j.log.Warn("the claims cannot be counted", "error", err)
	}
	now, err := step(ctx, j.store.Now)
	if err != nil {
		return err
	}
	if err := j.remember(ctx, now); err != nil && ctx.Err() == nil { // then what is old is known later
		j.log.Debug("the readings of the clock cannot be stored", "error", err)
	}
	j.ended.Saw(now.Wall)
	j.unused.Saw(now.Wall)
	n, err := j.prune(ctx, min(j.history.before(now.Wall, j.cutoff), j.ended.Before()))
	if err := errors.Join(err, j.pruneResources(ctx, j.unused.Before())); err != nil { // the one does not need the other
		return err
	}
	if n == 0 && j.walk == "" {
		j.rested = time.Now()
	}
	return nil
}

// remember stores a reading of the clocks. The first call also reads the readings of earlier servers.
func (j *Janitor) remember(ctx context.Context, now claim.Instant) error {
	earlier, err := step(ctx, func(ctx context.Context) ([]claim.Instant, error) { return j.store.Remember(ctx, now) })
	if err == nil && !j.resumed {
		j.resumed = true
		j.ended.Resume(now, earlier)
		j.unused.Resume(now, earlier)
	}
	return err
}

// step carries out one request to the database, within stepTimeout.
func step[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return do(ctx)
}

// pruneResources visits some more resources, and pauses when it has visited all of them.
func (j *Janitor) pruneResources(ctx context.Context, before claim.Time) error {
	if before == 0 || j.walk == "" && time.Since(j.walked) < walkInterval {
		return nil
	}
	steps := walkSteps
	switch {
	case j.walk == "":
		j.began = time.Now()
	case time.Since(j.began) > longWalk:
		steps = hasteSteps
	}
	for range steps {
		next, err := step(ctx, func(ctx context.Context) (string, error) {
			return j.store.PruneResources(ctx, j.walk, before, pruneStep)
		})
		if next != "" || err == nil {
			j.walk = next
		}
		if err != nil {
			return err
		}
		if j.walk == "" {
			j.walked = time.Now()
			return nil
		}
		if err := periodic.Pause(ctx, prunePause); err != nil {
			return err
		}
	}
	return nil
}

// count counts the claims when that is due, and finds the cutoff for the limit. If that fails or takes too long, the
// last cutoff stays in force.
func (j *Janitor) count(ctx context.Context) error {
	interval := countInterval
	if j.cutoff != 0 {
		interval = fullInterval
	}
	if time.Since(j.counted) < interval {
		return nil
	}
	j.counted = time.Now()
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	census, err := j.store.Census(ctx, j.history.Limit)
	if err != nil {
		return err
	}
	j.census.Store(&census)
	j.claims.WithLabelValues("waiting").Set(float64(census.Waiting))
	j.claims.WithLabelValues("active").Set(float64(census.Active))
	j.claims.WithLabelValues("finished").Set(float64(census.Finished))
	j.cutoff = 0
	if census.Finished > int64(j.history.Limit) {
		j.cutoff = census.Cutoff
	}
	return j.noteOldest(ctx, census.OldestWaiting)
}

// Census returns the last census, nil before the first.
func (j *Janitor) Census() *db.Census { return j.census.Load() }

// noteOldest notes how long the oldest waiting claim has waited. created is when it was made.
func (j *Janitor) noteOldest(ctx context.Context, created claim.Time) error {
	now, err := j.store.Now(ctx)
	if err != nil {
		return err
	}
	waited := time.Duration(0)
	if created != 0 {
		waited = max(0, now.Wall.Sub(created))
	}
	j.oldest.Set(waited.Seconds())
	return nil
}

// prune deletes all that ended before a time, and returns how many there were.
func (j *Janitor) prune(ctx context.Context, before claim.Time) (deleted int, err error) {
	for {
		n, err := step(ctx, func(ctx context.Context) (int, error) { return j.store.Prune(ctx, before, pruneStep) })
		deleted += n
		if err != nil || n < pruneStep {
			return deleted, err
		}
		if err := periodic.Pause(ctx, prunePause); err != nil {
			return deleted, err
		}
	}
}
