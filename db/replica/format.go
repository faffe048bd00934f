package replica

import (
	"context"
	"time"

	"github.com/locket-service/locket/db/replica/record"
)

// The servers of a cluster use one format for everything: see record.Format. Each announces the highest one that it knows. When all have known a
// newer one for a day, so that nobody takes the new program back, the decider writes a record with it. From then on a server that does not
// know the format does not start.

// raiseFormat has the servers use the newest format that all of them know, if this server decides.
func (c *cluster) raiseFormat(ctx context.Context) error {
	newest, err := c.newestFormat(ctx)
	if err != nil || newest == 0 {
		c.newSince = time.Time{}
		return err
	}
	if c.newSince.IsZero() {
		c.newSince = time.Now()
	}
	if time.Since(c.newSince) < c.s.options.FormatDelay {
		return nil
	}
	c.s.options.Log.Info("the servers use a newer format from now on", "format", newest)
	return c.s.write(ctx, func(d decision) (*record.Record, error) {
		return &record.Record{Header: record.Header{Wall: d.now.Wall}, Format: newest}, nil
	})
}

// newestFormat returns the newest format that all servers know, 0 if it is in use, or this server does not decide.
func (c *cluster) newestFormat(ctx context.Context) (newest uint64, err error) {
	c.s.mu.RLock()
	used := c.s.state.Format()
	c.s.mu.RUnlock()
	if newest = c.s.options.Format; newest <= used || c.decides() == 0 {
		return 0, nil
	}
	announced, err := c.announced(ctx)
	if err != nil {
		return 0, err
	}
	for _, a := range announced {
		newest = min(newest, a.Format)
	}
	if len(announced) == 0 || newest <= used {
		return 0, nil
	}
	return newest, nil
}
