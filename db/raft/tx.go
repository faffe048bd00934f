package raft

import (
	"context"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/raft/record"
	"github.com/locket-service/locket/internal/claim"
)

// tx is a db.Tx.
type tx struct {
	s     *Store
	now   claim.Instant
	saved *claim.Queues
}

// Transact implements db.Transactor. One node decides, one transaction after the other, so nothing conflicts, and fn
// runs once.
func (s *Store) Transact(ctx context.Context, fn func(db.Tx) error) error {
	return s.write(ctx, func(d decision) (*record.Record, error) {
		t := &tx{s: s, now: d.now}
		if err := fn(t); err != nil || t.saved == nil {
			return nil, err
		}
		r := &record.Record{Claims: record.Merge(t.saved.Transitions()), Sessions: t.saved.ChangedSessions()}
		if len(r.Claims)+len(r.Sessions) == 0 {
			return nil, nil
		}
		r.Wall = t.saved.Now.Wall
		return r, nil
	})
}

// Load implements db.Tx. The state does not change meanwhile.
func (t *tx) Load(wanted db.Wanted) (*claim.Queues, error) {
	return t.s.state.Load(t.now, wanted, t.s.finished)
}

// Save implements db.Tx.
func (t *tx) Save(queues *claim.Queues) error {
	t.saved = queues
	return nil
}

// finished returns a claim that has ended, nil if there is none with this id.
func (s *Store) finished(id string) (*claim.Claim, error) {
	s.mu.RLock()
	c := s.pending.byID[id]
	s.mu.RUnlock()
	if c != nil {
		return c, nil
	}
	c, err := s.history.Find(id)
	return c, unavailable(err)
}

// Beat implements db.Pulse.
func (s *Store) Beat(ctx context.Context) error {
	return s.beat(ctx, func(d decision) claim.Time { return d.now.Lease })
}

// Resume implements db.Pulse.
func (s *Store) Resume(ctx context.Context) error {
	return s.beat(ctx, func(decision) claim.Time { return s.clock.last() })
}

// beat commits a record of lease time.
func (s *Store) beat(ctx context.Context, lease func(decision) claim.Time) error {
	lost := false
	err := s.write(ctx, func(d decision) (*record.Record, error) {
		r := &record.Record{Header: record.Header{Wall: d.now.Wall, Lease: lease(d)}}
		if name := s.registeredName(); name != "" {
			if lost = !s.state.Registered(name); !lost {
				r.Servers = []record.Server{{Name: name, Seen: r.Lease}}
			}
		}
		return r, nil
	})
	if err == nil && lost {
		s.registeredAs.Store(nil)
		return db.ErrServerGone
	}
	return err
}

// registeredName is the name under which this server keeps sessions alive, "" for none.
func (s *Store) registeredName() string {
	if name := s.registeredAs.Load(); name != nil {
		return *name
	}
	return ""
}

// Register implements db.Pulse.
func (s *Store) Register(ctx context.Context, name string) error {
	s.registeredAs.Store(nil)
	if name == "" {
		return nil
	}
	err := s.write(ctx, func(d decision) (*record.Record, error) {
		return &record.Record{Header: record.Header{Wall: d.now.Wall}, Servers: []record.Server{{Name: name, Seen: d.now.Lease}}}, nil
	})
	if err == nil {
		s.registeredAs.Store(&name)
	}
	return err
}

// DetachSilent implements db.Sessions. Those that are silent are this server, before it was started anew.
func (s *Store) DetachSilent(ctx context.Context, silence time.Duration) (detached int, err error) {
	s.mu.RLock()
	silent := s.state.Silent(s.clock.instant().DueBefore().Add(-silence), s.registeredName())
	s.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	for name, seen := range silent {
		err := s.write(ctx, func(d decision) (*record.Record, error) {
			r := &record.Record{Header: record.Header{Wall: d.now.Wall}, Servers: []record.Server{{Name: name, Gone: true}}}
			r.Sessions = s.state.Detached(name, seen)
			detached += len(r.Sessions)
			return r, nil
		})
		if err != nil {
			return detached, err
		}
	}
	return detached, nil
}

// PruneResources implements db.Pruner.
func (s *Store) PruneResources(ctx context.Context, after string, before claim.Time, limit int) (next string, err error) {
	err = s.write(ctx, func(d decision) (*record.Record, error) {
		r := &record.Record{Header: record.Header{Wall: d.now.Wall}}
		if r.Rows, next = s.state.Unused(after, before, limit); len(r.Rows) == 0 {
			return nil, nil
		}
		return r, nil
	})
	return next, err
}
