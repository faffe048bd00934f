package committer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/locket-service/locket/db"
)

// beatForLeases beats, unless there is no lease.
func (c *Committer) beatForLeases() {
	c.health.turn()
	if c.leases.none.Load() && !c.failing && !c.hasSessions() {
		if c.time.resting.Store(true); c.inService() {
			c.until = time.Now()
		}
		return
	}
	_ = c.beat() // reported
}

// inService reports whether this server has been able to commit until now: the last commit has not failed, and the
// process was not stopped for longer than db.MaxSilence.
func (c *Committer) inService() bool { return time.Since(c.until) <= db.MaxSilence }

// resume makes sure that this server is in service and that lease time runs, before a transaction looks at leases.
func (c *Committer) resume() error {
	if c.inService() && !c.time.resting.Load() {
		return nil
	}
	return c.beat()
}

// beat beats once. It is called between batches, since lease time must not run while the database takes no commits.
// Its error, which it also logs, is always db.ErrUnavailable: a server that cannot beat can commit nothing.
func (c *Committer) beat() error {
	c.land()
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	c.health.begin()
	defer c.health.answered()
	begin := time.Now()
	resumes, next := !c.inService(), db.Clock.Beat
	if resumes {
		next = db.Clock.Resume
	}
	registered := c.registered.Load()
	err := c.store.Beat(ctx, resumes)
	lost := errors.Is(err, db.ErrServerGone)
	if lost {
		c.registered.CompareAndSwap(registered, nil) // it may have another name by now
		err = nil                                    // the beat itself was done
	}
	if err != nil && !errors.Is(err, db.ErrUnavailable) {
		err = fmt.Errorf("%w: %v", db.ErrUnavailable, err) //nolint:errorlint // the outcome of a beat is none of a request
	}
	c.committed(err)
	if err == nil {
		c.time.moved(next, begin)
		c.beaten(begin, lost)
	}
	return err
}

// committed notes whether the commit or beat that has just ended has failed.
func (c *Committer) committed(err error) {
	c.until = time.Now()
	if err != nil {
		c.until = time.Time{}
	}
	c.report(err)
}

// report notes whether the database takes commits.
func (c *Committer) report(err error) {
	c.health.commits(err)
	if err != nil && !c.failing {
		c.metrics.outages.Inc()
	}
	c.failing = err != nil
	c.outages.Report(err)
}
