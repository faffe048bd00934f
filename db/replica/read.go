package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/state"
	"github.com/locket-service/locket/internal/rules/claim"
)

// view calls look with the state, and waits until all that it has seen is committed.
func (s *Store) view(ctx context.Context, look func(*state.State)) error {
	if err := s.current(ctx); err != nil {
		return err
	}
	s.mu.RLock()
	look(s.state)
	last := s.last
	s.mu.RUnlock()
	return s.seen(ctx, last)
}

// current waits until the state has everything that any server acknowledged before the call.
func (s *Store) current(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.cluster != nil:
		return s.cluster.wait(ctx)
	}
	return nil // it is the only one
}

// seen waits until a proposal is committed that was the last one when somebody looked, nil for none.
func (s *Store) seen(ctx context.Context, last *proposal) error {
	err := s.Failure()
	if last != nil && err == nil {
		err = s.outcome(ctx, last)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return fmt.Errorf("%w: %v", db.ErrUnavailable, err) //nolint:errorlint // nobody asked for the commit here
	}
}

// unavailable returns an error of the history as one of package db.
func unavailable(err error) error {
	if errors.Is(err, history.ErrUnreadable) {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	return err
}

// Now implements db.Clocks.
func (s *Store) Now(ctx context.Context) (claim.Instant, error) {
	if s.cluster != nil && s.cluster.decides() == 0 {
		done, err := s.cluster.ask(ctx, record.Job{})
		return done.Now, err
	}
	return s.clock.instant(), nil
}

// ClockState implements db.Clocks. The clock is this machine's, so there is no offset.
func (s *Store) ClockState() db.ClockState {
	s.mu.RLock()
	quarantine := s.state.Quarantine
	s.mu.RUnlock()
	return db.ClockState{Outage: s.clock.outage(), Lease: s.clock.instant().Lease, Beaten: s.clock.last(), Quarantine: quarantine}
}

// now returns the time for reads of a state.
func (s *Store) now(live *state.State) claim.Instant {
	now := s.clock.instant()
	now.Quarantine = live.Quarantine
	return now
}

// Get implements db.Getter.
func (s *Store) Get(ctx context.Context, id string, limit int) (c claim.Claim, ahead int, now claim.Instant, err error) {
	var found *claim.Claim
	err = s.view(ctx, func(live *state.State) {
		switch found = live.Get(id); {
		case found == nil:
			found = s.pending.byID[id]
		case found.Status == claim.Waiting && limit > 0:
			ahead = live.Ahead(found.Resource, found.Enqueued, limit)
		}
	})
	if err == nil && found == nil {
		// What was written to the history meanwhile is there: it leaves memory only then.
		if found, err = s.history.Find(ctx, id); err == nil && found == nil {
			found, err = s.findElsewhere(ctx, id)
		}
	}
	switch {
	case err != nil:
		return claim.Claim{}, 0, s.clock.instant(), unavailable(err)
	case found == nil:
		return claim.Claim{}, 0, s.clock.instant(), claim.ErrNotFound
	}
	return *found, ahead, s.clock.instant(), nil
}

// Holder implements db.Reader.
func (s *Store) Holder(ctx context.Context, resource string) (claim.Claim, error) {
	var found *claim.Claim
	if err := s.view(ctx, func(live *state.State) { found = live.Holder(resource) }); err != nil {
		return claim.Claim{}, err
	}
	if found == nil {
		return claim.Claim{}, claim.ErrNotFound
	}
	return *found, nil
}

// Live implements db.Reader.
func (s *Store) Live(ctx context.Context, of db.LiveOf, page db.Page) (claims []claim.Claim, err error) {
	err = s.view(ctx, func(live *state.State) {
		switch {
		case of.Session != "":
			claims = live.SessionClaims(of.Session)
		case of.Held != nil:
			claims = live.Held(*of.Held, page)
		default:
			claims = live.Live(of.Resource, page)
		}
	})
	return claims, err
}

// Queue implements db.Reader.
func (s *Store) Queue(ctx context.Context, resource string, limit int) (snapshot db.Snapshot, now claim.Instant, err error) {
	err = s.view(ctx, func(live *state.State) { snapshot = live.Queue(resource, limit) })
	return snapshot, s.clock.instant(), err
}

// WaitsOf implements db.Reader.
func (s *Store) WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) (waits []claim.Claim, err error) {
	err = s.view(ctx, func(live *state.State) { waits = live.WaitsOf(owners, limit) })
	return waits, err
}

// Usage implements db.Usages.
func (s *Store) Usage(ctx context.Context, identity string, except []string) (usage claim.Count, err error) {
	err = s.view(ctx, func(live *state.State) { usage = live.Usage(identity, except) })
	return usage, err
}

// Resources implements db.Resources.
func (s *Store) Resources(ctx context.Context, prefix, after string, limit int) (resources []db.Resource, next string, now claim.Instant, err error) {
	err = s.view(ctx, func(live *state.State) { resources, next = live.Resources(prefix, after, limit) })
	return resources, next, s.clock.instant(), err
}

// Contended implements db.Resources.
func (s *Store) Contended(ctx context.Context, prefix string, after *db.Contention, limit int) (list []db.Resource, now claim.Instant, err error) {
	var tooMany error
	err = s.view(ctx, func(live *state.State) { list, tooMany = live.Contended(prefix, after, limit) })
	return list, s.clock.instant(), errors.Join(err, tooMany)
}

// Due implements db.Due.
func (s *Store) Due(ctx context.Context, query db.DueQuery) (o db.Overdue, err error) {
	err = s.view(ctx, func(live *state.State) {
		o.Now = s.now(live)
		before := o.Now.DueBefore()
		if query.Resources > 0 {
			o.Resources = live.Due(before, query.Idle, query.Resources)
		}
		if query.Waiters > 0 {
			o.Waiters = live.Abandoned(before, query.Waiters)
		}
		if query.Sessions > 0 {
			o.Sessions = live.DueSessions(before, query.Sessions)
		}
		switch {
		case query.Names() > 0:
		case o.Now.Quarantined():
			o.Next = o.Now.Quarantine // until then nothing is due
		default:
			o.Next = live.NextDue(o.Now.Lease, query.Idle, s.registeredName())
		}
	})
	return o, err
}

// Session implements db.Sessions.
func (s *Store) Session(ctx context.Context, id string) (claim.Session, claim.Instant, error) {
	var found *claim.Session
	err := s.view(ctx, func(live *state.State) { found = live.Session(id) })
	switch {
	case err != nil:
		return claim.Session{}, s.clock.instant(), err
	case found == nil:
		return claim.Session{}, s.clock.instant(), claim.ErrSessionEnded
	}
	return *found, s.clock.instant(), nil
}

// Sessions implements db.Sessions.
func (s *Store) Sessions(ctx context.Context, after string, limit int) (page []db.SessionCount, now claim.Instant, err error) {
	err = s.view(ctx, func(live *state.State) {
		live.Sessions(after, func(known *claim.Session) bool {
			if len(page) == limit {
				return false
			}
			count := live.CountSession(known.ID)
			page = append(page, db.SessionCount{Session: *known, Active: count.Active, Waiting: count.Waiting})
			return true
		})
	})
	return page, s.clock.instant(), err
}

// AttachedTo implements db.Sessions.
func (s *Store) AttachedTo(ctx context.Context, server string) (ids []string, err error) {
	err = s.view(ctx, func(live *state.State) { ids = live.AttachedTo(server) })
	return ids, err
}

// linesOfView is how many resources are looked at before commits may go on.
const linesOfView = 1000

// Census implements db.Pruner.
func (s *Store) Census(ctx context.Context, keep int) (n db.Census, err error) {
	err = s.view(ctx, func(live *state.State) {
		count := live.Count()
		n = db.Census{Waiting: int64(count.Waiting), Active: int64(count.Active), Finished: int64(len(s.pending.ended)) + s.history.Count(), Sessions: int64(live.CountSessions())}
	})
	for after, more := "", true; more && err == nil; {
		err = s.view(ctx, func(live *state.State) {
			var first claim.Time
			first, after, more = live.OldestWaiting(after, linesOfView)
			if n.OldestWaiting == 0 || first != 0 && first < n.OldestWaiting {
				n.OldestWaiting = first
			}
		})
	}
	if err == nil && 0 < keep && int64(keep) <= n.Finished {
		n.Cutoff, err = s.cutoff(ctx, keep)
	}
	return n, err
}

// cutoff returns when the keep-th newest finished claim ended.
func (s *Store) cutoff(ctx context.Context, keep int) (claim.Time, error) {
	var at claim.Time
	err := beside(ctx, func() error {
		err := s.onTurn(ctx, s.writeEnded)
		if err == nil {
			at, err = s.history.Cutoff(ctx, keep)
		}
		return err
	})
	if err != nil {
		return 0, unavailable(err)
	}
	return at, nil
}
