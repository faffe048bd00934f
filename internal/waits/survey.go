package waits

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

const (
	// surveyInterval is how often the detector looks for claims that no server has examined, because the server that made
	// them has failed.
	surveyInterval = 30 * time.Second
	// surveyStep is how many owners a survey asks about at once.
	surveyStep = 256
)

// surveyIfDue finds the waiting claims of all owners that hold what others wait for.
func (d *Detector) surveyIfDue(ctx context.Context) {
	d.mu.Lock()
	due := !time.Now().Before(d.survey)
	d.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, now, err := d.holdAndWait(ctx)
	if err != nil {
		d.log.DebugContext(ctx, "claims that other servers have made cannot be examined for deadlocks now", "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.survey = time.Now().Add(surveyInterval)
	for i := range found {
		if c := &found[i]; now.Wall.Sub(c.Created) >= patience { // the others are examined by who made them, or by the next survey
			d.add(c, time.Time{})
		}
	}
}

// holdAndWait returns the waiting claims of the owners that hold contended resources.
func (d *Detector) holdAndWait(ctx context.Context) (found []claim.Claim, now claim.Instant, err error) {
	contended, now, err := d.store.Contended(ctx, "", nil, db.MaxContended)
	if err != nil {
		return nil, now, err
	}
	owners := make(map[claim.OwnerKey]bool)
	for i := range contended {
		r := &contended[i]
		if owners[r.First.OwnerKey()] = true; r.Shared < 2 {
			continue
		}
		queue, _, err := d.store.Queue(ctx, r.Resource, maxAhead)
		if err != nil {
			return nil, now, err
		}
		for i := range queue.Holders {
			owners[queue.Holders[i].OwnerKey()] = true
		}
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(owners)), surveyStep) {
		claims, err := d.store.WaitsOf(ctx, some, MaxRead)
		if err != nil {
			return nil, now, err
		}
		found = append(found, claims...)
	}
	return found, now, nil
}
