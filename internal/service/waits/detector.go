package waits

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// patience is how long a claim has waited when it is examined.
	patience = time.Second
	// lookInterval is the pause between two looks while claims wait.
	lookInterval = patience / 4
	// lookTimeout bounds the examination of one claim, and a survey.
	lookTimeout = 10 * time.Second
)

// Detector ends deadlocks. It is a committer.Listener, and an ifrit.Runner that must start after the committer.
//
// A deadlock is complete when the youngest of its claims begins to wait. So each server examines each claim that it
// has made once, when the claim has waited for a second. If the claim is the youngest of a deadlock and does not
// allow deadlocks, it is aborted, in a transaction that changes nothing if the deadlock is over. So two servers may
// examine the same claim.
type Detector struct {
	store   db.Reader
	do      func(context.Context, claim.Command) (claim.Claim, error)
	log     *slog.Logger
	ended   prometheus.Counter
	allowed atomic.Int64

	wake chan struct{} // has a value when the pause may have become shorter

	mu       sync.Mutex
	waiting  map[string]*candidate // by the claim's id, not yet examined
	survey   time.Time             // when the next survey is due
	surveyed time.Time             // when the last one was
	lasting  map[string]bool       // the resources of deadlocks that are allowed, at the last survey
}

// candidate is a claim that waits, and may be in a deadlock.
type candidate struct {
	claim.Claim
	due time.Time
}

// NewDetector returns a detector, and registers its metrics. do carries out commands.
func NewDetector(store db.Reader, do func(context.Context, claim.Command) (claim.Claim, error), log *slog.Logger, registerer prometheus.Registerer) *Detector {
	d := &Detector{
		store: store, do: do, log: log, wake: make(chan struct{}, 1), waiting: make(map[string]*candidate),
		ended: metric.Counter("locket_deadlocks_total", "Deadlocks that this server has ended, by aborting a claim."),
	}
	registerer.MustRegister(d.ended, metric.GaugeFunc("locket_deadlocks_allowed", "Deadlocks that have lasted for 30 s, at the last survey, because the youngest claim allows deadlocks.", func() float64 { return float64(d.Allowed()) }))
	return d
}

// Allowed returns how many deadlocks have lasted for a surveyInterval, at the last survey, because the youngest claim allows
// deadlocks.
func (d *Detector) Allowed() int64 { return d.allowed.Load() }

func (d *Detector) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return periodic.Paced(d.pause, d.wake, d.look).Run(signals, ready)
}

// pause returns the time until the next look.
func (d *Detector) pause() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) > 0 {
		return lookInterval
	}
	return max(lookInterval, time.Until(d.survey))
}

func (d *Detector) Committed(_ claim.Instant, changes []claim.Transition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	due := time.Now().Add(patience)
	for _, t := range changes {
		if d.lasting[t.After.Resource] && t.Before != nil && t.Before.Status != t.After.Status { // it may be over
			d.lasting, d.survey = nil, d.surveyed.Add(earlySurvey)
			d.poke()
		}
		switch c := t.After; {
		case t.StoppedWaiting():
			delete(d.waiting, c.ID)
		case t.Before == nil && c.Status == claim.Waiting && !c.AllowDeadlock && c.OwnerKey() != claim.OwnerKey{}:
			d.add(*c, due)
		}
	}
}

// Lasting returns the resources of deadlocks that last because their claims allow them, as the last survey found
// them.
func (d *Detector) Lasting() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.lasting))
}

// Missed implements committer.Listener: a claim may wait that this server does not know of.
func (d *Detector) Missed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.survey = time.Now().Add(patience)
	d.poke()
}

// add schedules the examination of a claim.
func (d *Detector) add(c claim.Claim, due time.Time) {
	c.UserData, c.Value = nil, ""
	d.waiting[c.ID] = &candidate{c, due}
	if len(d.waiting) == 1 {
		d.poke()
	}
}

// poke ends the pause, whose length may have changed.
func (d *Detector) poke() { periodic.Wake(d.wake) }

// look examines the claims whose time has come.
func (d *Detector) look(ctx context.Context) {
	d.examineDue(ctx)
	d.surveyIfDue(ctx)
}

func (d *Detector) examineDue(ctx context.Context) {
	r := newReads(d.store)
	for _, c := range d.due() {
		if ctx.Err() != nil {
			return
		}
		if _, again := d.examine(ctx, r, c); !again {
			d.mu.Lock()
			delete(d.waiting, c.ID)
			d.mu.Unlock()
		}
	}
}

// due returns the claims whose time has come.
func (d *Detector) due() (due []claim.Claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, c := range d.waiting {
		if !c.due.After(now) {
			due = append(due, c.Claim)
		}
	}
	return due
}

// examine searches for a deadlock whose youngest claim is c, and aborts c unless it allows deadlocks. If again is
// true, c may still be in a deadlock and must be examined again with new reads.
func (d *Detector) examine(ctx context.Context, r *reads, c claim.Claim) (deadlock []link, again bool) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	deadlock, err := deadlockOf(ctx, r, c)
	if err != nil {
		d.log.DebugContext(ctx, "a claim cannot be examined for a deadlock, and will be again", "claim", c.ID, "error", err)
		return nil, true
	}
	if len(deadlock) == 0 || c.AllowDeadlock {
		return deadlock, false
	}
	waits := make([]claim.Wait, len(deadlock))
	for i := range deadlock {
		waits[i] = deadlock[i].Wait
	}
	victim, err := d.do(ctx, claim.EndDeadlock{Waits: waits})
	*r = *newReads(d.store)
	switch {
	case err != nil:
		d.log.DebugContext(ctx, "a claim cannot be aborted to end a deadlock, and will be examined again", "claim", c.ID, "error", err)
	case victim.Status == claim.Aborted:
		d.ended.Inc()
		d.log.InfoContext(ctx, "a claim was aborted to end a deadlock", "claim", victim.ID, "resource", victim.Resource, "owner", victim.Owner, "reason", victim.Reason)
	}
	if errors.Is(err, claim.ErrNotFound) { // it may be c, which has ended long ago; otherwise the next survey finds c
		return deadlock, false
	}
	return deadlock, err != nil || victim.Status == claim.Waiting
}
