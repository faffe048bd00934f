package watch

import (
	"context"

	"github.com/locket-service/locket/claim"
)

// Await returns a claim once it no longer waits: when it is active, or final. It returns
// claim.ErrNotFound, ErrStopped, the errors of db.Store, or that of ctx.
func (h *Hub) Await(ctx context.Context, id string) (claim.Claim, claim.Instant, error) {
	s := h.subscribe(id)
	defer h.unsubscribe(s)
	for {
		c, now, err := h.store.Get(ctx, id)
		if err != nil || c.Status != claim.Waiting {
			return c, now, err
		}
		select {
		case n := <-s.news:
			if n != nil {
				return *n.claim, n.now, nil
			}
		case <-h.stopped:
			return claim.Claim{}, claim.Instant{}, ErrStopped
		case <-ctx.Done():
			return claim.Claim{}, claim.Instant{}, context.Cause(ctx)
		}
	}
}
