package watch

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

const (
	// lookInterval is how often a waiting call reads its claim although nothing has woken
	// it: an update may have been lost.
	lookInterval = 5 * time.Second
	// looksPerSecond is how many such reads all waiting calls of this server make together.
	looksPerSecond = 1000
)

// Await returns a claim once it no longer waits: when it is active, or final. It returns
// claim.ErrNotFound, ErrStopped, the errors of db.Store, or that of ctx.
func (h *Hub) Await(ctx context.Context, id string) (claim.Claim, claim.Instant, error) {
	s := h.subscribe(id)
	defer h.unsubscribe(s)
	look := time.NewTimer(h.untilLook())
	defer look.Stop()
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	if h.running.Err() == nil { // else it reads once
		defer context.AfterFunc(h.running, cancel)() // the database may hang
	}
	for waited := false; ; waited = true {
		c, now, err := h.store.Get(reading, id)
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
				h.Answers.told(n)
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

// untilLook returns when a call is to look again: the more calls wait, the later. Calls that
// began together part.
func (h *Hub) untilLook() time.Duration {
	interval := max(lookInterval, time.Duration(h.len())*time.Second/looksPerSecond)
	return interval - rand.N(interval/4)
}
