package replica

import (
	"context"
	"fmt"
	"sync"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// ahead has, of claims that commands name, what a transaction needs to know when they are neither live nor on their way to
// the history. It is read from the history before the transaction: nothing that holds up other commits reads a file.
type ahead struct {
	mu    sync.Mutex // taken after Store.mu
	names map[string]*named
}

// named is the id of a claim that commands name.
type named struct {
	users int // commands on their way
	// known says that the history has no other claim with this id than ended. A claim that leaves memory for the history
	// is noted here, so that what is known stays right however long a command is on its way.
	known bool
	ended *claim.Claim
}

// keep starts recording changes of claims, until release is called as often.
func (a *ahead) keep(ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		n := a.names[id]
		if n == nil {
			n = new(named)
			a.names[id] = n
		}
		n.users++
	}
}

func (a *ahead) release(ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		if n := a.names[id]; n.users > 1 {
			n.users--
		} else {
			delete(a.names, id)
		}
	}
}

// left notes that a claim is in memory no longer.
func (a *ahead) left(c *claim.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.names[c.ID]; n != nil {
		n.known, n.ended = true, c
	}
}

// found notes what the history has, unless more has become known since it was asked.
func (a *ahead) found(id string, c *claim.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.names[id]; !n.known {
		n.known, n.ended = true, c
	}
}

func (a *ahead) get(id string) (ended *claim.Claim, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.names[id]; n != nil {
		return n.ended, n.known
	}
	return nil, false
}

// Prepare implements db.Transactor.
func (s *Store) Prepare(cmd claim.Command) (read func(context.Context) error, release func()) {
	var ids []string
	for _, target := range cmd.Targets() {
		if target.ID != "" {
			ids = append(ids, target.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	s.ahead.keep(ids)
	release = func() { s.ahead.release(ids) }
	if unknown := s.unknown(ids); len(unknown) > 0 {
		read = func(ctx context.Context) error { return s.lookUp(ctx, unknown) }
	}
	return read, release
}

// unknown returns the ids that only the history may have a claim of.
func (s *Store) unknown(ids []string) (unknown []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, id := range ids {
		if s.state.Has(id) {
			continue
		}
		if _, known := s.ended(id); !known {
			unknown = append(unknown, id)
		}
	}
	return unknown
}

// ended returns a claim that is live no longer, nil if there is none, and whether that is known without the file of the
// history. Its caller holds mu.
func (s *Store) ended(id string) (c *claim.Claim, known bool) {
	if c := s.pending.byID[id]; c != nil {
		return c, true
	}
	return s.ahead.get(id)
}

// lookUp reads claims that are kept ahead from the history.
func (s *Store) lookUp(ctx context.Context, ids []string) error {
	for _, id := range ids {
		c, err := s.history.Find(ctx, id)
		if err == nil && c == nil {
			c, err = s.findElsewhere(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("%w: look up claim %q: %w", db.ErrUnavailable, id, err)
		}
		s.ahead.found(id, c)
	}
	return nil
}
