package session

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// resetReason is the reason in claims that Reset has ended.
const resetReason = "the sessions were reset"

// endReason is the reason in claims that End has ended.
const endReason = "the session was ended"

const (
	resetPage     = 1000
	resetParallel = 64
)

// List returns sessions of all servers in the order of their ids, after one id and up to a limit.
func (m *Manager) List(ctx context.Context, after string, limit int) ([]db.SessionCount, claim.Instant, error) {
	return m.store.Sessions(ctx, after, limit)
}

// Get returns a session of any server, or claim.ErrSessionEnded.
func (m *Manager) Get(ctx context.Context, id string) (found db.SessionCount, now claim.Instant, err error) {
	if found.Session, now, err = m.store.Session(ctx, id); err != nil {
		return found, now, err
	}
	claims, err := m.store.Live(ctx, db.LiveOf{Session: id}, db.Page{})
	for i := range claims {
		if claims[i].Status == claim.Active {
			found.Active++
		} else {
			found.Waiting++
		}
	}
	return found, now, err
}

// End ends a session of any server. It returns nil if the session has ended already. After an error some of its claims
// may have ended; it may be repeated.
func (m *Manager) End(ctx context.Context, id string) error {
	_, err := m.revoke(ctx, []string{id}, endReason)
	return err
}

// Reset ends all sessions of all servers except those to keep, and returns how many there were. It ends their waiting
// claims first, so that none of them is granted a resource that another one releases. After an error some sessions may
// have ended; it may be repeated.
func (m *Manager) Reset(ctx context.Context, keep []string) (ended int, err error) {
	sessions, err := m.others(ctx, keep)
	if err != nil {
		return 0, err
	}
	return m.revoke(ctx, sessions, resetReason)
}

// revoke ends all waiting claims of the sessions, and then the sessions. It returns how many of these have ended.
func (m *Manager) revoke(ctx context.Context, sessions []string, reason string) (ended int, err error) {
	if _, err := m.endEach(ctx, sessions, claim.EndSession{Waiting: claim.Revoked, Keep: true, Reason: reason}); err != nil {
		return 0, err
	}
	return m.endEach(ctx, sessions, claim.EndSession{Active: claim.Revoked, Waiting: claim.Revoked, Reason: reason})
}

// others returns the ids of all sessions except those to keep.
func (m *Manager) others(ctx context.Context, keep []string) (ids []string, err error) {
	keep = slices.Sorted(slices.Values(keep))
	for after := ""; ; {
		page, _, err := m.store.Sessions(ctx, after, resetPage)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if _, kept := slices.BinarySearch(keep, page[i].ID); !kept {
				ids = append(ids, page[i].ID)
			}
		}
		if len(page) < resetPage {
			return ids, nil
		}
		after = page[len(page)-1].ID
	}
}

// endEach runs a command for each session, several concurrently. It returns for how many the command succeeded, and the
// first error. Sessions that have already ended are skipped.
func (m *Manager) endEach(ctx context.Context, sessions []string, cmd claim.EndSession) (done int, first error) {
	for some := range slices.Chunk(sessions, resetParallel) {
		errs := make([]error, len(some))
		var all sync.WaitGroup
		for i, id := range some {
			all.Go(func() {
				each := cmd
				each.ID = id
				if _, errs[i] = m.queues.Do(ctx, each); errs[i] == nil && !cmd.Keep {
					m.ended(id)
				}
			})
		}
		all.Wait()
		for _, err := range errs {
			if first = cmp.Or(first, err); err == nil {
				done++
			}
		}
	}
	return done, first
}

// ended ends the service of a session that has ended, if it is attached here.
func (m *Manager) ended(id string) {
	if a := m.find(id); a != nil {
		a.inbox.Put(func() { a.end(claim.ErrSessionEnded) }) // after the changes of its claims
	}
}
