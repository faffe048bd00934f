package committer

import (
	"context"
	"errors"
	"time"

	"github.com/locket-service/locket/db"
)

// flight is a batch that is decided and not committed yet. The next batch may be decided meanwhile. Its callers are
// answered when it is committed.
type flight struct {
	batch   []*request
	outcome db.Outcome
	commit  db.Completion
	start   time.Time
	ctx     context.Context
	cancel  context.CancelFunc
}

// done returns a channel that is closed when the commit of the flight has ended; nil without a flight.
func (f *flight) done() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.commit.Done()
}

// late returns a channel that is closed when the time of the flight is up: its callers are then answered, committed or
// not. It is nil without a flight.
func (f *flight) late() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.ctx.Done()
}

// worth reports whether to decide the next batch now. During a flight that takes as many waiting requests as the flight
// has: fewer should wait until its commit has ended, and be joined by more. A committer that gathers waits for that end in any
// case. It is called when the queue gets its first request, and when a batch has left some there.
func (c *Committer) worth() bool {
	return c.flight == nil || c.gathers == 0 && c.queue.len() >= len(c.flight.batch)
}

// land waits for the commit of the flight, if there is one, and answers its callers. Then the committer looks at the
// queue again.
func (c *Committer) land() {
	if f := c.flight; f != nil {
		c.flight = nil
		c.end(f, f.commit.Wait(f.ctx))
		c.queue.rouse()
	}
}

// observe counts a batch whose transaction has ended. If it was decided during another flight, its time includes the
// rest of that flight's commit: its callers waited for both.
func (c *Committer) observe(f *flight, err error) {
	f.cancel()
	c.health.answered()
	c.metrics.observe(len(f.batch), time.Since(f.start), err)
	if err != nil {
		c.trace(f.batch, f.start, time.Now(), nil, err)
	}
}

// end tells the listeners how a batch ended, and answers its callers.
func (c *Committer) end(f *flight, err error) {
	c.observe(f, err)
	c.callers, c.took = len(f.batch)+c.queue.len(), time.Since(f.start)
	if err == nil {
		switch {
		case f.outcome.Committed:
			c.committed(nil)
		case !c.failing: // it shows no commit, but the process was not stopped: it has waited for the database
			c.until = time.Now()
		}
		batch := answered(f.batch, f.outcome)
		c.trace(batch, f.start, time.Now(), f.outcome.Changes, nil)
		c.metrics.observeHandovers(f.outcome, batch, f.start, time.Now())
		c.listeners.committed(f.outcome.Now, f.outcome.Changes)
		c.tellRefused(batch)
		c.answer(c.goOn(batch), nil)
		c.grantMore(f.outcome.Unsettled)
		return
	}
	if errors.Is(err, db.ErrOutcomeUnknown) {
		c.listeners.missed()
	}
	c.committed(err)
	c.answer(f.batch, err)
	c.answer(c.queue.takeOlder(time.Now().Add(-c.timeout/2)), err)
}
