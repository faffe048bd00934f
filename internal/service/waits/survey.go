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
	// surveyStep is how many owners a survey asks about at once.
	surveyStep = 256
)

// surveyIfDue schedules the examination of the waiting claims of all owners that hold what others wait for.
func (d *Detector) surveyIfDue(ctx context.Context) {
	d.mu.Lock()
	due := !time.Now().Before(d.survey)
	if due {
		d.survey = time.Now().Add(surveyInterval)
	}
	d.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	claims, err := d.holdAndWait(ctx)
	if err != nil {
		d.log.DebugContext(ctx, "claims that other servers have made cannot be examined for deadlocks now", "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range claims {
		d.add(c)
	}
}

// holdAndWait returns the waiting claims of the owners that hold contended resources.
func (d *Detector) holdAndWait(ctx context.Context) (found []claim.Claim, err error) {
	contended, _, err := d.store.Contended(ctx, "", nil, db.MaxContended)
	owners := make(map[claim.OwnerKey]bool)
	for i := range contended {
		c := &contended[i]
		if owners[c.First.OwnerKey()] = true; c.Shared < 2 {
			continue
		}
		queue, _, err := d.store.Queue(ctx, c.Resource, maxAhead)
		if err != nil {
			return nil, err
		}
		for i := range queue.Holders {
			owners[queue.Holders[i].OwnerKey()] = true
		}
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(owners)), surveyStep) {
		claims, err := d.waitsOf(ctx, some)
		if err != nil {
			return found, err
		}
		found = append(found, claims...)
	}
	return found, err
}

// waitsOf returns the waiting claims of owners. Many waits of one owner do not hide the waits of another.
func (d *Detector) waitsOf(ctx context.Context, owners []claim.OwnerKey) ([]claim.Claim, error) {
	claims, err := d.store.WaitsOf(ctx, owners, MaxVisited)
	half := len(owners) / 2
	if err != nil || len(claims) < MaxVisited || half == 0 {
		return claims, err
	}
	first, err := d.waitsOf(ctx, owners[:half])
	if err != nil {
		return nil, err
	}
	second, err := d.waitsOf(ctx, owners[half:])
	return append(first, second...), err
}
