package committer

import (
	"slices"
	"sync"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Listener gets the changes of this server's transactions.
type Listener interface {
	// Committed is called after a commit, before its callers are answered, for one
	// transaction after the other.
	Committed(now claim.Instant, changes []claim.Transition)
	// Missed is called when a transaction may have been committed but its changes are not known here.
	Missed()
}

// listeners has the listeners of a committer.
type listeners struct {
	mu  sync.Mutex
	all []Listener
}

// Listen adds a listener, which hears of all later commits.
func (c *Committer) Listen(listener Listener) {
	c.listeners.mu.Lock()
	defer c.listeners.mu.Unlock()
	c.listeners.all = append(slices.Clip(c.listeners.all), listener)
}

func (l *listeners) get() []Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// committed tells all listeners what a transaction changed.
func (l *listeners) committed(now claim.Instant, changes []claim.Transition) {
	for _, listener := range l.get() {
		listener.Committed(now, changes)
	}
}

// tellRefused tells of the requests of a batch that were refused.
func (c *Committer) tellRefused(batch []*request) {
	if c.refused == nil {
		return
	}
	for _, r := range batch {
		if r.err == nil {
			continue
		}
		if resource, refused := claim.Refused(r.cmd, r.err); refused {
			c.refused(resource)
		}
	}
}

func (l *listeners) missed() {
	for _, listener := range l.get() {
		listener.Missed()
	}
}
