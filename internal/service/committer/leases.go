package committer

import (
	"sync/atomic"

	"github.com/locket-service/locket/internal/rules/claim"
)

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
