package waits

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// surveyInterval is how often the detector looks for claims that no server has examined, because the server that made
	// them has failed.
	surveyInterval = 30 * time.Second
	// earlySurvey is the least time between two surveys when a deadlock that lasts may be over.
	earlySurvey = 5 * time.Second
	// surveyStep is how many owners a survey asks about at once.
	surveyStep = 256
)

// surveyIfDue examines the waiting claims of all owners that hold what others wait for, and counts the deadlocks that are
// allowed.
func (d *Detector) surveyIfDue(ctx context.Context) {
	if !d.surveyDue() {
		return
	}
	within, cancel := context.WithTimeout(ctx, surveyInterval)
	defer cancel()
	r, allowed, looked := newReads(d.store), int64(0), time.Now()
	claims, now, err := d.holdAndWait(within, r)
	if err != nil {
		d.log.DebugContext(ctx, "claims that other servers have made cannot be examined for deadlocks now", "error", err)
		return
	}
	lasting := make(map[string]bool)
	for _, c := range claims {
		if within.Err() != nil {
			return
		}
		waited := now.Wall.Sub(c.Created)
		if 0 <= waited && waited < patience || c.AllowDeadlock && waited < surveyInterval { // it is examined by its own server, or by the next survey
			continue
		}
		if time.Since(looked) >= lookInterval { // other claims do not wait for the end of the survey
			d.examineDue(ctx)
			looked = time.Now()
		}
		switch deadlock, again := d.examine(within, r, c); {
		case again:
			d.mu.Lock()
			d.add(c, time.Time{})
			d.mu.Unlock()
		case len(deadlock) > 0 && c.AllowDeadlock:
			allowed++
			for _, w := range deadlock {
				lasting[w.resource] = true
			}
		}
	}
	d.allowed.Store(allowed)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lasting = lasting
}

// surveyDue reports whether a survey is due, and sets the time of the next one.
func (d *Detector) surveyDue() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if now.Before(d.survey) {
		return false
	}
	d.surveyed, d.survey = now, now.Add(surveyInterval)
	return true
}

// holdAndWait returns the waiting claims of the owners that hold contended resources.
func (d *Detector) holdAndWait(ctx context.Context, r *reads) (found []claim.Claim, now claim.Instant, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	contended, now, err := d.store.Contended(ctx, "", nil, db.MaxContended)
	if err != nil {
		return nil, now, err
	}
	owners := make(map[claim.OwnerKey]bool)
	for i := range contended {
		c := &contended[i]
		if owners[c.First.OwnerKey()] = true; c.Shared < 2 {
			continue
		}
		r.left = MaxRead
		queue, err := r.queue(ctx, c.Resource)
		if err != nil {
			return nil, now, err
		}
		for i := range queue.Holders {
			owners[queue.Holders[i].OwnerKey()] = true
		}
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(owners)), surveyStep) {
		claims, err := r.askAll(ctx, some)
		if err != nil {
			return nil, now, err
		}
		found = append(found, claims...)
	}
	return found, now, nil
}
