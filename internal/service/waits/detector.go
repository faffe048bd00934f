package waits

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
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
	// lookInterval is the pause between two looks while claims wait, and lookTime about how long one lasts at most. It is less
	// than patience: a look shares its reads, and the claims that it examines must have waited when it began.
	lookInterval = patience / 4
	lookTime     = patience / 2
	// lookTimeout bounds the examination of one claim, and a survey.
	lookTimeout = 10 * time.Second
	// lastingInterval is how often a deadlock is examined that its youngest claim allows.
	lastingInterval = 5 * time.Second
)

// Detector ends deadlocks. It is a committer.Listener, and an ifrit.Runner that must start after the committer.
//
// A deadlock is complete when the youngest of its claims begins to wait. So each server examines each claim that it
// has made once, when the claim has waited for a second. If the claim is the youngest of a deadlock and does not
// allow deadlocks, it is aborted, in a transaction that changes nothing if the deadlock is over. So two servers may
// examine the same claim, and a survey finds the claims of servers that have failed.
type Detector struct {
	store db.Reader
	do    func(context.Context, claim.Command) (claim.Claim, error)
	log   *slog.Logger
	ended prometheus.Counter

	wake chan struct{} // has a value when the pause may have become shorter

	mu      sync.Mutex
	waiting map[string]*candidate // by the claim's id
	survey  time.Time             // when the next survey is due
}

// candidate is a claim that waits, and may be in a deadlock.
type candidate struct {
	claim.Claim
	due time.Time // when it is examined
	// lasting has the resources of a deadlock that the claim allows, as the last examination found it.
	lasting []string
}

// NewDetector returns a detector, and registers its metrics. do carries out commands.
func NewDetector(store db.Reader, do func(context.Context, claim.Command) (claim.Claim, error), log *slog.Logger, registerer prometheus.Registerer) *Detector {
	d := &Detector{
		store: store, do: do, log: log, wake: make(chan struct{}, 1), waiting: make(map[string]*candidate),
		ended: metric.Counter("locket_deadlocks_total", "Deadlocks that this server has ended, by aborting a claim."),
	}
	registerer.MustRegister(d.ended, metric.GaugeFunc("locket_deadlocks_allowed", "Deadlocks that last because the youngest claim allows deadlocks.", func() float64 { return float64(d.Allowed()) }))
	return d
}

// Allowed returns how many deadlocks last because the youngest claim allows deadlocks.
func (d *Detector) Allowed() (n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.waiting {
		n += int64(min(len(c.lasting), 1))
	}
	return n
}

// Lasting returns the resources of these deadlocks, in order.
func (d *Detector) Lasting() (resources []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.waiting {
		resources = append(resources, c.lasting...)
	}
	slices.Sort(resources)
	return slices.Compact(resources)
}

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
	for _, t := range changes {
		switch {
		case t.StoppedWaiting():
			delete(d.waiting, t.After.ID)
		case t.Before == nil && t.After.Status == claim.Waiting:
			d.add(*t.After)
		}
	}
}

// Missed implements committer.Listener: a claim may wait that this server does not know of.
func (d *Detector) Missed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.survey = time.Now().Add(patience)
	periodic.Wake(d.wake)
}

// add schedules the examination of a claim with an owner.
func (d *Detector) add(c claim.Claim) {
	if d.waiting[c.ID] != nil || c.OwnerKey() == (claim.OwnerKey{}) {
		return
	}
	c.UserData, c.Value = nil, ""
	d.waiting[c.ID] = &candidate{Claim: c, due: time.Now().Add(patience)}
	if len(d.waiting) == 1 {
		periodic.Wake(d.wake)
	}
}

// look examines the claims whose time has come, or as many as one look may.
func (d *Detector) look(ctx context.Context) {
	d.surveyIfDue(ctx)
	r, began := newReads(d.store), time.Now()
	for _, c := range d.due() {
		if d.examine(ctx, r, c); ctx.Err() != nil || time.Since(began) > lookTime {
			return
		}
	}
}

// due returns the claims whose time has come, the last first, so that a long survey does not delay new claims.
func (d *Detector) due() (due []*candidate) {
	d.mu.Lock()
	for _, c := range d.waiting {
		if !c.due.After(time.Now()) {
			due = append(due, c)
		}
	}
	d.mu.Unlock()
	slices.SortFunc(due, func(a, b *candidate) int { return cmp.Or(b.due.Compare(a.due), cmp.Compare(a.ID, b.ID)) })
	return due
}

// examine searches for a deadlock whose youngest claim is c, and aborts c unless it allows deadlocks. After an error
// the next look examines c again.
func (d *Detector) examine(ctx context.Context, r *reads, c *candidate) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := deadlockOf(ctx, r, c.Claim)
	again := err != nil
	if found != nil && !c.AllowDeadlock {
		again, err = d.abort(ctx, found.waits)
		*r = *newReads(d.store)
	}
	if err != nil {
		d.log.DebugContext(ctx, "a claim cannot be examined for a deadlock now", "claim", c.ID, "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case again:
	case found != nil && c.AllowDeadlock:
		c.due, c.lasting = time.Now().Add(lastingInterval), found.resources
	default:
		delete(d.waiting, c.ID)
	}
}

// abort ends a deadlock by aborting its first claim. It reports whether the claim may be in a deadlock still.
func (d *Detector) abort(ctx context.Context, waits []claim.Wait) (again bool, err error) {
	victim, err := d.do(ctx, claim.EndDeadlock{Waits: waits})
	switch {
	case err != nil:
		return !errors.Is(err, claim.ErrNotFound), err // the claim that is not found has ended long ago; if it is another one, a survey finds the first
	case victim.Status == claim.Aborted:
		d.ended.Inc()
		d.log.InfoContext(ctx, "a claim was aborted to end a deadlock", "claim", victim.ID, "resource", victim.Resource, "owner", victim.Owner, "reason", victim.Reason)
	}
	return victim.Status == claim.Waiting, nil
}
