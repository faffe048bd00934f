package watch

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// lookInterval is how often a waiting call reads its claim without having been woken, because an update may have
	// been lost.
	lookInterval = 5 * time.Second
	// looksPerSecond limits these reads, of all waiting calls of this server together.
	looksPerSecond = 1000
)

// Await waits until a claim is active or final, and returns it. It returns claim.ErrNotFound, ErrStopped, the errors of
// db.Store, or the cause of ctx.
func (h *Hub) Await(ctx context.Context, id string) (claim.Claim, claim.Instant, error) {
	s := h.subscribe(id)
	defer h.unsubscribe(s)
	look := time.NewTimer(h.untilLook())
	defer look.Stop()
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	if h.running.Err() == nil { // a stopped hub still reads once
		defer context.AfterFunc(h.running, cancel)() // a database that hangs must not delay Stop
	}
	for waited := false; ; waited = true {
		c, _, now, err := h.store.Get(reading, id, 0)
		switch {
		case err != nil && ctx.Err() == nil && reading.Err() != nil:
			return claim.Claim{}, claim.Instant{}, ErrStopped
		case err != nil || c.Status != claim.Waiting:
			if err == nil && waited {
				h.Answers.read(&c, now)
			}
			return c, now, err
		}
		h.noteWaitTTL(s, &c, now)
		select {
		case n := <-s.updates:
			if n != nil {
				h.Answers.answered(n)
				return *n.claim, n.now, nil
			}
		case <-look.C:
			look.Reset(h.untilLook())
		case <-h.running.Done():
			return claim.Claim{}, claim.Instant{}, ErrStopped
		case <-ctx.Done():
			return claim.Claim{}, claim.Instant{}, context.Cause(ctx)
		}
	}
}

// untilLook returns the time until a call looks again. It grows with the number of waiting calls, and is random, so
// that calls that began together spread.
func (h *Hub) untilLook() time.Duration {
	interval := max(lookInterval, time.Duration(h.len())*time.Second/looksPerSecond)
	return interval - rand.N(interval/4)
}
