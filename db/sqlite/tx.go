package sqlite

import (
	"context"
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// waitersChunk is how many waiting claims are read at once.
const waitersChunk = 16

// maxEndBytes is how large the claims of sessions may be that one transaction ends, the last one apart.
const maxEndBytes = 4 << 20

// tx is a db.Tx.
type tx struct {
	w     *statements
	floor uint64
	now   claim.Instant
	saved *claim.Queues // what Save was given, nil if nothing changed
	due   int           // how many shared holders that are due may still be loaded
	// ends and endBytes are how many claims of sessions may still end, and how large they may be.
	ends, endBytes int
}

// Transact implements db.Transactor.
func (s *Store) Transact(ctx context.Context, batch db.Batch) (db.Outcome, error) {
	return db.CarryOut(ctx, s, batch)
}

// Update implements db.Updater. There are no other servers, so nothing conflicts and fn runs once.
func (s *Store) Update(ctx context.Context, fn func(db.Tx) error) error {
	t := &tx{}
	return s.write(ctx, func() error {
		t.w, t.floor, t.now = s.writer, s.floor, s.instant()
		return fn(t)
	}, func() {
		if t.saved != nil {
			s.Committed(t.saved.Now.Wall, t.saved.Transitions())
		}
	})
}

// Load implements db.Tx.
func (t *tx) Load(wanted db.Wanted) (*claim.Queues, error) {
	qs := claim.NewQueues(t.now, len(wanted.Resources)+len(wanted.Claims))
	t.due, t.ends, t.endBytes = db.MaxDue, claim.MaxEnds, maxEndBytes
	for _, name := range wanted.Resources {
		if err := t.loadResource(qs, name, wanted); err != nil {
			return nil, err
		}
	}
	for _, id := range wanted.Claims {
		if err := t.loadClaim(qs, id, wanted); err != nil {
			return nil, err
		}
	}
	for _, id := range wanted.Sessions {
		if err := t.loadSession(qs, id, wanted); err != nil {
			return nil, err
		}
	}
	for _, identity := range wanted.Identities {
		if err := t.loadCount(qs, identity); err != nil {
			return nil, err
		}
	}
	return qs, nil
}

func (t *tx) loadResource(qs *claim.Queues, name string, wanted db.Wanted) error {
	if qs.Resource(name) != nil {
		return nil
	}
	row := claim.Row{Resource: name}
	err := query(t.w.resource, func() { scanRow(t.w.resource, &row) }, name)
	if err != nil {
		return err
	}
	qs.Put(claim.NewQueue(row, t.floor, t.waiters))
	if row.Holder != "" {
		_, whole := slices.BinarySearch(wanted.WholeHolders, name)
		c, err := t.readClaim(row.Holder, whole, wanted)
		if c != nil {
			qs.Add(c)
		}
		return err
	}
	if row.Shared > 0 {
		add := func() {
			c := scanShort(t.w.sharedDue)
			if _, whole := slices.BinarySearch(wanted.WholeClaims, c.ID); !whole { // else it is added as it is read for that
				qs.Add(c)
			}
			t.due--
		}
		return query(t.w.sharedDue, add, name, int64(t.now.Lease), max(1, t.due))
	}
	return nil
}

func (t *tx) loadClaim(qs *claim.Queues, id string, wanted db.Wanted) error {
	c, err := t.readClaim(id, false, wanted)
	if err != nil || c == nil {
		return err
	}
	if err := t.loadResource(qs, c.Resource, wanted); err != nil {
		return err
	}
	qs.Add(c)
	return nil
}

// readClaim returns a claim, whole if that is asked for or wanted, or nil.
func (t *tx) readClaim(id string, whole bool, wanted db.Wanted) (c *claim.Claim, err error) {
	if !whole {
		_, whole = slices.BinarySearch(wanted.WholeClaims, id)
	}
	if whole {
		err = query(t.w.claim, func() { c = scan(t.w.claim) }, id)
	} else {
		err = query(t.w.shortClaim, func() { c = scanShort(t.w.shortClaim) }, id)
	}
	return c, err
}

// waiters is the claim.MoreWaiters of the queues of this transaction.
func (t *tx) waiters(resource string, after uint64) (next []*claim.Claim, err error) {
	err = query(t.w.waiting, func() { next = append(next, scanShort(t.w.waiting)) },
		resource, int64(after), waitersChunk)
	return next, err
}

// Save implements db.Tx.
func (t *tx) Save(qs *claim.Queues) error {
	changed := qs.Changed()
	if len(changed) > 0 {
		t.saved = qs
	}
	for _, q := range changed {
		if err := t.saveResource(q); err != nil {
			return err
		}
	}
	for _, change := range qs.Changes() {
		if err := t.saveClaim(change); err != nil {
			return err
		}
		if c := change.After; qs.Counted(change) {
			if err := run(t.w.insertOf, c.Identity, c.ID); err != nil {
				return err
			}
		}
	}
	for _, change := range qs.ChangedSessions() {
		if err := t.saveSession(change); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) saveClaim(change claim.Transition) error {
	switch {
	case change.Before == nil:
		return t.insertClaim(change.After)
	case db.OnlyEnds(change):
		return t.endClaim(change.After)
	case change.SetsValue():
		if err := run(t.w.updateValue, change.After.Value, change.After.ID); err != nil {
			return err
		}
	}
	return t.updateClaim(change.After)
}

func (t *tx) saveResource(q *claim.Queue) error {
	stmt := t.w.updateResource
	if q.Stored().Version == 0 {
		stmt = t.w.insertResource
	}
	stmt.BindInt64(1, int64(q.Version))
	stmt.BindText(2, q.Holder)
	stmt.BindInt64(3, int64(q.Shared))
	stmt.BindInt64(4, int64(q.Waiting))
	stmt.BindText(5, q.Resource)
	return run(stmt)
}

func (t *tx) insertClaim(c *claim.Claim) error {
	stmt := t.w.insertClaim
	stmt.BindText(1, c.ID)
	stmt.BindText(2, c.Resource)
	stmt.BindText(3, c.Owner)
	stmt.BindInt64(4, int64(c.Mode))
	stmt.BindInt64(5, int64(c.Type))
	stmt.BindInt64(6, c.TTL.Microseconds())
	if c.UserData == nil {
		stmt.BindNull(7)
	} else {
		stmt.BindText(7, string(c.UserData))
	}
	stmt.BindText(8, c.Value)
	stmt.BindInt64(9, int64(c.Status))
	stmt.BindInt64(10, int64(c.Enqueued))
	stmt.BindInt64(11, int64(c.Token))
	stmt.BindInt64(12, int64(c.Version))
	stmt.BindInt64(13, int64(c.Deadline))
	stmt.BindInt64(14, int64(c.Created))
	stmt.BindInt64(15, int64(c.Activated))
	stmt.BindInt64(16, int64(c.Finished))
	stmt.BindText(17, c.Reason)
	stmt.BindText(18, c.Session)
	stmt.BindInt64(19, c.WaitTTL.Microseconds())
	stmt.BindText(20, c.Identity)
	stmt.BindText(21, c.EndedBy)
	return run(stmt)
}

func (t *tx) updateClaim(c *claim.Claim) error {
	stmt := t.w.updateClaim
	stmt.BindInt64(1, int64(c.Type))
	stmt.BindInt64(2, c.TTL.Microseconds())
	stmt.BindInt64(3, int64(c.Status))
	stmt.BindInt64(4, int64(c.Token))
	stmt.BindInt64(5, int64(c.Version))
	stmt.BindInt64(6, int64(c.Deadline))
	stmt.BindInt64(7, int64(c.Activated))
	stmt.BindInt64(8, int64(c.Finished))
	stmt.BindText(9, c.Reason)
	stmt.BindText(10, c.EndedBy)
	stmt.BindText(11, c.ID)
	return run(stmt)
}

func (t *tx) endClaim(c *claim.Claim) error {
	stmt := t.w.endClaim
	stmt.BindInt64(1, int64(c.Status))
	stmt.BindInt64(2, int64(c.Version))
	stmt.BindInt64(3, int64(c.Finished))
	stmt.BindText(4, c.Reason)
	stmt.BindText(5, c.EndedBy)
	stmt.BindText(6, c.ID)
	return run(stmt)
}
