package committer

import (
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// leaseTime is lease time by this server's own beats and its monotonic clock. The rule is db.Clock; the beats of other
// servers are left out.
type leaseTime struct {
	began time.Time
	clock atomic.Pointer[db.Clock]
	// resting is set when a beat was due and there were no leases. idle is how long lease time has stood still for
	// this reason, until the last beat.
	resting atomic.Bool
	idle    atomic.Int64
}

func (l *leaseTime) at(t time.Time) claim.Time { return claim.Time(1).Add(t.Sub(l.began)) }

func (l *leaseTime) start() {
	l.began = time.Now()
	l.clock.Store(&db.Clock{Seen: l.at(l.began)})
}

func (l *leaseTime) moved(next func(db.Clock, claim.Time) db.Clock, began time.Time) {
	before := l.clock.Load()
	clock := next(*before, l.at(began))
	if l.resting.Swap(false) {
		l.idle.Add(int64(clock.Outage - before.Outage))
	}
	l.clock.Store(&clock)
}

// Stood returns how long lease time has stood still since this committer was made: without leases, and while it could
// not commit. It may be called from any goroutine.
func (c *Committer) Stood() (idle, unavailable time.Duration) {
	idle = time.Duration(c.time.idle.Load())
	clock, now := c.time.clock.Load(), c.time.at(time.Now())
	all := now.Sub(clock.Instant(now).Lease)
	if c.time.resting.Load() {
		idle += all - clock.Outage
	}
	return idle, max(0, all-idle)
}

// LeaseTime returns how much lease time has passed since this committer was made, for timeouts that must not count an
// outage. It is never more than has passed in the database. It may be called from any goroutine.
func (c *Committer) LeaseTime() time.Duration {
	return c.time.clock.Load().Instant(c.time.at(time.Now())).Lease.Sub(1)
}

// leases knows whether there are leases that beats protect. Without leases nobody needs lease time, and an idle server
// writes nothing.
type leases struct {
	none   atomic.Bool
	grants atomic.Uint64 // how many commits have made or renewed leases
}

// Committed implements Listener.
func (l *leases) Committed(_ claim.Instant, changes []claim.Transition) {
	for _, change := range changes {
		if change.After.Status == claim.Active {
			l.grants.Add(1)
			l.none.Store(false)
			return
		}
	}
}

func (l *leases) Missed() {
	l.grants.Add(1)
	l.none.Store(false)
}

// Grants returns how many commits of this server have made or renewed leases, for SetLive.
func (c *Committer) Grants() uint64 { return c.leases.grants.Load() }

// SetLive sets whether the database has a live lease. The caller reads that after Grants has returned grants. Without
// a lease the committer does not beat until it commits one.
func (c *Committer) SetLive(live bool, grants uint64) {
	c.leases.none.Store(!live)
	if c.Grants() != grants { // one was committed meanwhile
		c.leases.none.Store(false)
	}
}
