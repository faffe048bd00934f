package committer

import (
	"slices"
	"time"
)

// blame handles a batch that failed: it finds the request at fault, unless the database takes no commits at all.
func (c *Committer) blame(last time.Time, batch []*request, cause error) {
	switch err := c.beat(); {
	case err != nil:
		c.answer(batch, err)
	case len(batch) == 1:
		c.failures.Do(func() { c.log.Error("a request failed", "error", cause) })
		c.answer(batch, cause)
	default:
		c.cuts.Do(func() { c.log.Warn("a batch is cut in two", "requests", len(batch), "error", cause) })
		n := c.cut(batch)
		c.commitUntil(last, batch[:n])
		if err := c.resume(); err != nil {
			c.answer(batch[n:], err)
			return
		}
		c.commitUntil(last, batch[n:])
	}
}

// cut returns how many requests of a batch that failed are tried first: half of them. If the batch has both new work
// and renewals or ends of claims, these come first and alone: somebody else's lock may prevent only new rows, and
// leases end without renewals.
func (c *Committer) cut(batch []*request) int {
	isNew := make(map[*request]bool, len(batch))
	for _, r := range batch {
		isNew[r] = c.queue.isNew(r.cmd)
	}
	slices.SortStableFunc(batch, func(a, b *request) int {
		switch {
		case isNew[a] == isNew[b]:
			return 0
		case isNew[b]:
			return -1
		}
		return 1
	})
	if n := slices.IndexFunc(batch, func(r *request) bool { return isNew[r] }); n > 0 {
		return n
	}
	return len(batch) / 2
}
