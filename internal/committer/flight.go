package committer

import (
	"context"
	"errors"
	"time"

	"github.com/locket-service/locket/db"
)

// flight is a batch that is decided. Its callers are answered when it is committed; meanwhile the next one may be decided.
type flight struct {
	batch   []*request
	outcome db.Outcome
	commit  db.Completion
	start   time.Time
	ctx     context.Context
	cancel  context.CancelFunc
}

// begin has the store decide a batch. It returns no commit when the store has waited for it itself.
func (c *Committer) begin(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	if store, ok := c.store.(db.Pipeline); ok {
		return store.Begin(ctx, batch)
	}
	outcome, err := c.store.Transact(ctx, batch)
	return outcome, nil, err
}

// done is closed when the commit of the flight has ended, never without one.
func (f *flight) done() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.commit.Done()
}

// late is closed when the callers of the flight are to be answered, whether it is committed or not.
func (f *flight) late() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.ctx.Done()
}

// worth reports whether the next batch is to be decided now that some requests wait: beside a flight when they are as many
// as those under way. Fewer have more to gain from those that come until the commit has ended.
func (f *flight) worth(waiting int) bool { return f == nil || waiting >= len(f.batch) }

// land waits for the commit of the flight, if there is one, and answers its callers. Requests that have waited for that go
// on.
func (c *Committer) land() {
	if f := c.flight; f != nil {
		c.flight = nil
		c.end(f, f.commit.Wait(f.ctx))
		c.queue.rouse()
	}
}

// observe counts a batch whose transaction has ended. The time of one that was decided beside a flight includes what was left
// of that one's commit: its callers waited for both.
func (c *Committer) observe(f *flight, err error) {
	f.cancel()
	c.health.answered()
	c.metrics.observe(len(f.batch), time.Since(f.start), err)
	if err != nil {
		c.trace(f.batch, f.start, time.Now(), nil, err)
	}
}

// end passes on what has become of a batch, and answers its callers.
func (c *Committer) end(f *flight, err error) {
	c.observe(f, err)
	if err == nil {
		if f.outcome.Committed {
			c.committed(nil)
		}
		batch := answered(f.batch, f.outcome)
		c.trace(batch, f.start, time.Now(), f.outcome.Changes, nil)
		c.metrics.observeHandovers(f.outcome, batch, f.start, time.Now())
		c.listeners.committed(f.outcome.Now, f.outcome.Changes)
		c.answer(c.goOn(batch), nil)
		c.grantMore(f.outcome.Unsettled)
		return
	}
	if errors.Is(err, db.ErrOutcomeUnknown) {
		c.quotas.Missed()
		c.listeners.missed()
	}
	c.committed(err)
	c.answer(f.batch, err)
	c.answer(c.queue.takeOlder(time.Now().Add(-c.timeout/2)), err)
}
