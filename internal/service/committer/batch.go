package committer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// gatherYields is how often gather yields at most.
const gatherYields = 20

// gather waits for callers, and yields to the handlers that are about to add requests, while more requests come:
// when nothing else can run, it returns at once. Without it a busy server commits many small batches, which costs more for
// each request.
func (c *Committer) gather() {
	c.awaitReturn()
	before := 0
	for range gatherYields {
		pending := c.queue.len()
		if pending == before || pending >= c.maxBatch {
			break
		}
		before = pending
		runtime.Gosched()
	}
}

// awaitReturn waits until nine tenths of the callers wait, for Config.Gather and for the time of the last batch at most: the
// callers of that batch are likely to send their next requests. It does not wait for a single caller.
func (c *Committer) awaitReturn() {
	c.queue.await(min(c.callers*9/10, c.maxBatch), min(c.gathers, c.took))
	c.queue.await(min(c.callers, c.maxBatch), min(c.gathers, stragglers))
}

// stragglers is how long the other callers are waited for.
const stragglers = 100 * time.Microsecond

// commit carries out a batch and answers its callers. If the batch fails while the database takes other commits, it is
// cut in two, and so on, until the request that makes it fail is alone, or until the timeout.
func (c *Committer) commit(batch []*request) { c.commitUntil(time.Now().Add(c.timeout), batch) }

// commitUntil is like commit, but begins no transaction after last. It answers the remaining requests with
// db.ErrUnavailable.
func (c *Committer) commitUntil(last time.Time, batch []*request) {
	switch {
	case len(batch) == 0:
		return
	case time.Now().After(last):
		c.answer(batch, fmt.Errorf("%w: other requests of its batch have failed for %s", db.ErrUnavailable, c.timeout))
		return
	}
	c.health.begin()
	start := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), c.deadline(batch, start))
	requests := make([]claim.Request, len(batch))
	for i, r := range batch {
		requests[i] = claim.Request{Caller: r.caller, Command: r.cmd}
	}
	outcome, commit, err := c.store.Transact(ctx, db.Batch{Requests: requests})
	c.land()
	f := &flight{batch: batch, outcome: outcome, commit: commit, start: start, ctx: ctx, cancel: cancel}
	switch {
	case err == nil && commit != nil:
		c.flight = f
		c.health.begin()
	case err == nil, errors.Is(err, db.ErrUnavailable), errors.Is(err, db.ErrOutcomeUnknown):
		c.end(f, err)
	default:
		c.observe(f, err)
		c.blame(last, batch, err)
	}
}

func answered(batch []*request, outcome db.Outcome) []*request {
	for i, a := range outcome.Answers {
		r := batch[i]
		r.result, r.err = Result{Position: a.Position, Now: outcome.Now}, a.Err
		if a.Claim != nil {
			r.result.Claim = *a.Claim
		}
	}
	return batch
}

// goOn puts unfinished requests into the queue again, with the rest of their commands. It returns the finished ones.
func (c *Committer) goOn(batch []*request) []*request {
	finished := batch[:0]
	for _, r := range batch {
		if errors.Is(r.err, claim.ErrUnfinished) {
			r.cmd = claim.Rest(r.cmd)
			if r.err = c.queue.again(r); r.err == nil {
				continue
			}
		}
		finished = append(finished, r)
	}
	return finished
}

// deadline returns when a transaction that begins now must end, so that each caller is answered within the timeout. A
// request that has waited for less than half of the timeout gets the rest of it. One that has waited for longer is
// answered when its transaction fails, after half of the timeout at most.
func (c *Committer) deadline(batch []*request, now time.Time) time.Time {
	oldest := now
	for _, r := range batch {
		if !r.queued.IsZero() && r.queued.Before(oldest) {
			oldest = r.queued
		}
	}
	deadline, least := oldest.Add(c.timeout), now.Add(c.timeout/2)
	if deadline.Before(least) {
		return least
	}
	return deadline
}

// answer wakes the callers of a batch. If err is not nil, it answers all of them.
func (c *Committer) answer(batch []*request, err error) {
	for _, r := range batch {
		if err != nil {
			r.result, r.err = Result{}, err
		}
		r.decided()
		if r.then != nil {
			r.to.Put(func() {
				then, result, err := r.then, r.result, r.err
				c.recycle(r)
				then(result, err)
			})
			continue
		}
		r.done <- struct{}{}
	}
}

// grantMore continues with resources that had more claims to grant than fit into one transaction.
func (c *Committer) grantMore(resources []string) {
	if len(resources) == 0 {
		return
	}
	r := &request{ctx: context.Background(), cmd: claim.Expire{Resources: resources}, done: make(chan struct{}, 1)}
	if err := c.queue.again(r); err != nil {
		c.log.Warn("claims that can be granted wait for the next request", "resources", len(resources), "error", err)
	}
}
