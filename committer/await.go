package committer

import (
	"context"

	"github.com/locket-service/locket/claim"
)

// Await returns a claim once it no longer waits: when it is active, or final. It returns
// claim.ErrNotFound, ErrStopping, the errors of db.Store, or that of ctx.
func (c *Committer) Await(ctx context.Context, id string) (Result, error) {
	s := c.hub.subscribe(id)
	defer c.hub.unsubscribe(s)
	for {
		cl, now, err := c.store.Get(ctx, id)
		if err != nil || cl.Status != claim.Waiting {
			return Result{Claim: cl, Now: now}, err
		}
		select {
		case news := <-s.news:
			if news != nil {
				return *news, nil
			}
		case <-c.hub.stopped:
			return Result{}, ErrStopping
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
	}
}

// StopWaiting makes every Await return ErrStopping, now and from now on. Other requests
// go on.
func (c *Committer) StopWaiting() { c.hub.stop() }
