package mysql

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

const (
	// waitersChunk is how many waiting claims are read at once.
	waitersChunk = 16
	// dueChunk is how many shared holders that are due are read at most, of one resource.
	dueChunk = 256
	// attempts is how often a transaction runs while others come first.
	attempts = 20
)

// tx is a db.Tx.
type tx struct {
	*sql.Tx
	ctx   context.Context
	n     uint64 // the number of the commit
	store *Store
	saved bool
}

// Transact implements db.Store.
func (s *Store) Transact(ctx context.Context, fn func(db.Tx) error) error {
	reconnected := false
	for attempt := 1; ; attempt++ {
		err := s.attempt(ctx, fn)
		switch {
		case err == nil, ctx.Err() != nil, attempt == attempts, errors.Is(err, db.ErrOutcomeUnknown):
			return translate(ctx, err)
		case conflict(err):
		case broken(err) && !reconnected:
			reconnected = true // the connection may have been the only thing wrong
		default:
			return translate(ctx, err)
		}
		time.Sleep(rand.N(time.Duration(attempt) * time.Millisecond))
	}
}

// attempt runs a transaction once. When it fails, nothing of it is left, unless the error
// is db.ErrOutcomeUnknown.
func (s *Store) attempt(ctx context.Context, fn func(db.Tx) error) error {
	sqlTx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	t := &tx{Tx: sqlTx, ctx: ctx, n: s.nextCommit(), store: s}
	if err := fn(t); err != nil || !t.saved {
		_ = sqlTx.Rollback()
		return err
	}
	err = sqlTx.Commit()
	if err == nil || !outcomeOpen(err) {
		return err
	}
	return s.outcome(ctx, t.n, err)
}

func (s *Store) nextCommit() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	return s.commits
}

// Load implements db.Tx. The rows of the resources are locked before anything else is
// read, and READ COMMITTED makes each later statement see what was committed until then.
// The floor is read after the rows: whoever deletes a row raises the floor with it.
func (t *tx) Load(resources, ids []string) (*db.Queues, error) {
	named, err := t.resourcesOf(ids)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(resources)
	for _, resource := range named {
		names = append(names, resource)
	}
	slices.Sort(names)
	names = slices.Compact(names)

	rows, holders, err := t.lockResources(names)
	if err != nil {
		return nil, err
	}
	m, err := readMeta(t.ctx, t, "")
	if err != nil {
		return nil, err
	}
	qs := db.NewQueues(m.instant(), len(names))
	for _, name := range names {
		qs.Put(claim.NewQueue(rows[name], m.floor, t.waiters))
	}
	for _, c := range holders {
		qs.Add(c)
	}
	if err := t.loadDue(qs, rows); err != nil {
		return nil, err
	}
	return qs, t.loadClaims(qs, named)
}

// resourcesOf returns the resource of each claim that there is.
func (t *tx) resourcesOf(ids []string) (map[string]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found := make(map[string]string, len(ids))
	query := "SELECT id, resource FROM claims WHERE id IN " + marks(len(ids))
	err := each(t.ctx, t, query, anys(ids), func(rows *sql.Rows) error {
		var id, resource string
		err := rows.Scan(&id, &resource)
		found[id] = resource
		return err
	})
	return found, err
}

// lockResources locks the rows of resources and returns them, together with the exclusive
// holders. A resource without a row has one with Version 0.
func (t *tx) lockResources(names []string) (map[string]claim.Row, []*claim.Claim, error) {
	rows := make(map[string]claim.Row, len(names))
	for _, name := range names {
		rows[name] = claim.Row{Resource: name}
	}
	if len(names) == 0 {
		return rows, nil, nil
	}
	var held []any
	query := "SELECT name, version, holder, shared, waiting FROM resources FORCE INDEX (PRIMARY) WHERE name IN " +
		marks(len(names)) + " ORDER BY name FOR UPDATE"
	err := each(t.ctx, t, query, anys(names), func(r *sql.Rows) error {
		var row claim.Row
		err := r.Scan(&row.Resource, &row.Version, &row.Holder, &row.Shared, &row.Waiting)
		rows[row.Resource] = row
		if row.Holder != "" {
			held = append(held, row.Holder)
		}
		return err
	})
	if err != nil || len(held) == 0 {
		return rows, nil, err
	}
	holders, err := queryClaims(t.ctx, t, "SELECT "+claimColumns+" FROM claims WHERE id IN "+marks(len(held)), held...)
	return rows, holders, err
}

// loadDue adds the shared holders that are due.
func (t *tx) loadDue(qs *db.Queues, rows map[string]claim.Row) error {
	for name, row := range rows {
		if row.Shared == 0 {
			continue
		}
		due, err := queryClaims(t.ctx, t, "SELECT "+claimColumns+
			" FROM claims WHERE resource = ? AND status = 2 AND deadline <= ? LIMIT ?", name, qs.Now.Lease, dueChunk)
		if err != nil {
			return err
		}
		for _, c := range due {
			qs.Add(c)
		}
	}
	return nil
}

// loadClaims adds the claims that commands name.
func (t *tx) loadClaims(qs *db.Queues, named map[string]string) error {
	if len(named) == 0 {
		return nil
	}
	ids := make([]any, 0, len(named))
	for id := range named {
		ids = append(ids, id)
	}
	claims, err := queryClaims(t.ctx, t, "SELECT "+claimColumns+" FROM claims WHERE id IN "+marks(len(ids)), ids...)
	for _, c := range claims {
		qs.Add(c)
		qs.Name(c.ID, c.Resource)
	}
	return err
}

// waiters is the claim.MoreWaiters of the queues of this transaction.
func (t *tx) waiters(resource string, after uint64) ([]*claim.Claim, error) {
	return queryClaims(t.ctx, t, "SELECT "+claimColumns+
		" FROM claims WHERE resource = ? AND status = 1 AND position > ? ORDER BY position LIMIT ?",
		resource, after, waitersChunk)
}

// outcomeOpen reports whether a commit that failed may have been done all the same.
func outcomeOpen(err error) bool {
	return broken(err) || isCode(err, codeErrorDuringCommit) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, sql.ErrTxDone)
}

// outcomeTimeout is how long to ask for the outcome of a commit.
const outcomeTimeout = 5 * time.Second

// outcome finds out how commit n ended, and keeps it from ending otherwise: it writes the
// commit's row of the feed. While the commit is still under way the database makes this
// wait. If the row is there, the commit was done; if this can write it, the commit was not
// done and never will be.
func (s *Store) outcome(ctx context.Context, n uint64, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTimeout)
	defer cancel()
	for {
		_, err := s.reader.ExecContext(ctx, "INSERT INTO feed (server, n, at, ids) VALUES (?, ?, "+nowSQL+", '')", s.server, n)
		switch {
		case err == nil:
			return errors.Join(errUndone, cause)
		case isCode(err, codeDuplicate):
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(db.ErrOutcomeUnknown, cause)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
