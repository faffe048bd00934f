package waits

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/periodic"
)

const (
	// patience is how long a claim has waited when it is examined.
	patience = time.Second
	// lookInterval is the pause between two looks while claims wait.
	lookInterval = patience / 4
	// lookTimeout bounds the examination of one claim, and a survey.
	lookTimeout = 10 * time.Second
)

// DetectorStore is the part of a store that a Detector needs.
type DetectorStore interface {
	Store
	Contended(ctx context.Context, prefix string, after *db.Contention, limit int) ([]db.Resource, claim.Instant, error)
}

// Detector ends deadlocks. It is a committer.Listener, and an ifrit.Runner that must start after the committer.
//
// A deadlock is complete when the youngest of its claims begins to wait. So each server examines each claim that it has made
// once, when the claim has waited for a second. A claim that is the youngest of a deadlock, and does not allow that, is
// aborted, in a transaction that changes nothing if the deadlock is over. So it does no harm if two servers examine a claim.
type Detector struct {
	store DetectorStore
	do    func(context.Context, claim.Command) (claim.Claim, error)
	log   *slog.Logger
	ended prometheus.Counter

	wake chan struct{} // has a value when a claim has begun to wait

	mu      sync.Mutex
	waiting map[string]*candidate // by the claim's id, those that are not examined yet
	fresh   []*candidate          // in the order of their times
	again   []*candidate          // for the next look
	survey  time.Time             // when the next survey is due
}

// candidate is a claim that waits, and may be in a deadlock.
type candidate struct {
	claim.Claim
	due  time.Time
	over bool // it waits no longer
}

// NewDetector returns a detector, and registers its metric. do carries out commands.
func NewDetector(store DetectorStore, do func(context.Context, claim.Command) (claim.Claim, error), log *slog.Logger, registerer prometheus.Registerer) *Detector {
	d := &Detector{
		store: store, do: do, log: log, wake: make(chan struct{}, 1), waiting: make(map[string]*candidate),
		ended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "locket_deadlocks_total", Help: "Deadlocks that this server has ended, by aborting a claim.",
		}),
	}
	registerer.MustRegister(d.ended)
	return d
}

// Run implements ifrit.Runner.
func (d *Detector) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return periodic.Paced(d.pause, d.wake, d.look).Run(signals, ready)
}

// pause returns the time until the next look.
func (d *Detector) pause() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.survey
	switch {
	case len(d.again) > 0:
		next = time.Time{}
	case len(d.fresh) > 0 && d.fresh[0].due.Before(next):
		next = d.fresh[0].due
	}
	return max(lookInterval, time.Until(next))
}

// Committed implements committer.Listener.
func (d *Detector) Committed(_ claim.Instant, changes []claim.Transition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	due := time.Now().Add(patience)
	for _, t := range changes {
		switch {
		case t.Before == nil:
			if d.add(t.After, due) && len(d.fresh)+len(d.again) == 1 {
				d.poke()
			}
		case t.StoppedWaiting():
			if c := d.waiting[t.After.ID]; c != nil {
				c.over = true
				delete(d.waiting, t.After.ID)
			}
		}
	}
}

// Missed implements committer.Listener: a claim may wait that this server does not know of.
func (d *Detector) Missed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.survey = time.Now().Add(patience)
	d.poke()
}

// poke ends the pause, whose length may have changed.
func (d *Detector) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// add has a claim examined at a time, and reports whether it may be in a deadlock.
func (d *Detector) add(c *claim.Claim, due time.Time) bool {
	if c.Status != claim.Waiting || c.AllowDeadlock || c.OwnerKey() == (claim.OwnerKey{}) || d.waiting[c.ID] != nil {
		return false
	}
	added := &candidate{Claim: *c, due: due}
	added.UserData, added.Value = nil, ""
	d.waiting[c.ID] = added
	d.fresh = append(d.fresh, added)
	return true
}

// look examines the claims whose time has come.
func (d *Detector) look(ctx context.Context) {
	d.surveyIfDue(ctx)
	read := newReads(d.store)
	for _, c := range d.due() {
		if ctx.Err() != nil {
			return
		}
		found, err := d.examine(ctx, read, c.Claim)
		if err != nil {
			d.log.DebugContext(ctx, "a claim cannot be examined for a deadlock, and will be again", "claim", c.ID, "error", err)
		}
		if found || err != nil {
			read = newReads(d.store)
		}
		d.done(c, !found && err == nil)
	}
}

// due returns the claims whose time has come.
func (d *Detector) due() (due []*candidate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	due, d.again = d.again, nil
	n, now := 0, time.Now()
	for n < len(d.fresh) && (d.fresh[n].over || !d.fresh[n].due.After(now)) {
		n++
	}
	due = append(due, d.fresh[:n]...)
	if d.fresh = d.fresh[n:]; len(d.fresh) == 0 {
		d.fresh = nil // with its memory
	}
	return slices.DeleteFunc(due, func(c *candidate) bool { return c.over })
}

// done says that a claim was examined. Unless it is known to be in no deadlock, it is examined again at the next look.
func (d *Detector) done(c *candidate, free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case c.over:
	case free:
		delete(d.waiting, c.ID)
	default:
		d.again = append(d.again, c)
	}
}

// examine searches for a deadlock of which a claim is the youngest, and aborts the claim if there is one.
func (d *Detector) examine(ctx context.Context, read Store, c claim.Claim) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	links, err := deadlockOf(ctx, read, c)
	if err != nil || len(links) == 0 {
		return false, err
	}
	var end claim.EndDeadlock
	for _, l := range links {
		end.Waits = append(end.Waits, claim.Wait{Waiter: l.Waiter.ID, Blocker: l.Holder.ID})
	}
	aborted, err := d.do(ctx, end)
	if err == nil && aborted.Status == claim.Aborted {
		d.ended.Inc()
		d.log.InfoContext(ctx, "a claim was aborted to end a deadlock", "claim", aborted.ID, "resource", aborted.Resource, "owner", aborted.Owner, "reason", aborted.Reason)
	}
	return true, err
}
