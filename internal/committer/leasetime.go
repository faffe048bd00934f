package committer

import (
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// leaseTime is lease time by this server's own beats and its monotonic clock. The rule is db.Clock; the beats of other
// servers are left out.
type leaseTime struct {
	began time.Time
	clock atomic.Pointer[db.Clock]
}

func (l *leaseTime) at(t time.Time) claim.Time { return claim.Time(1).Add(t.Sub(l.began)) }

func (l *leaseTime) start() {
	l.began = time.Now()
	l.clock.Store(&db.Clock{Seen: l.at(l.began)})
}

// moved notes a beat.
func (l *leaseTime) moved(next func(db.Clock, claim.Time) db.Clock, began time.Time) {
	clock := next(*l.clock.Load(), l.at(began))
	l.clock.Store(&clock)
}

// LeaseTime returns how much lease time has passed since this committer was made, for timeouts that must not count an
// outage. It is never more than has passed in the database. It may be called from any goroutine.
func (c *Committer) LeaseTime() time.Duration {
	return c.time.clock.Load().Instant(c.time.at(time.Now())).Lease.Sub(1)
}
