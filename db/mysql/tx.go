package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// waitersChunk is how many waiting claims are read at once.
	waitersChunk = 16
	// retryTime is for how long new attempts at a transaction that conflicts with others may
	// start, and longestPause the longest pause before one.
	retryTime    = 5 * time.Second
	longestPause = 50 * time.Millisecond
)

// tx is a db.Tx. It collects what it writes, and sends it together with the COMMIT.
type tx struct {
	*sql.Conn
	ctx    context.Context
	server string // the name of this server in the feed
	n      uint64 // the number of the commit
	store  *Store
	script script
	queues []*claim.Queue // written by Save
	rows   uint64         // of the feed, that the commit has
	size   int            // of these rows
	// held are resources with claims whose rows somebody else has locked.
	held []string
	// renewed are resources whose holders this transaction has renewed, because nobody could. resumable are sessions
	// that it has given their full TTL, because nobody could resume them.
	renewed, resumable []string
}

// Transact implements db.Transactor.
func (s *Store) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	outcome, err := db.CarryOut(ctx, s, batch)
	return outcome, nil, err
}

// Prepare implements db.Transactor. Transactions read no files.
func (s *Store) Prepare(claim.Command) (read func(context.Context) error, release func()) {
	return nil, nil
}

// Update implements db.Updater.
func (s *Store) Update(ctx context.Context, fn func(db.Tx) error) error {
	reconnected, lockWaits := false, 0
	var held []string
	lastStart := time.Now().Add(s.limits.retry)
	for attempt := 1; ; attempt++ {
		err := s.attempt(ctx, held, fn)
		more := heldBy(err)
		switch {
		case len(more) > 0 && ctx.Err() == nil && time.Now().Before(lastStart):
			held = append(held, more...)
			s.locks.beCareful()
			continue
		case err != nil && ctx.Err() != nil, errors.Is(err, db.ErrOutcomeUnknown):
			s.locks.abandoned()
			return translate(ctx, err)
		case err == nil, time.Now().After(lastStart):
			return translate(ctx, err)
		case isCode(err, codeLockWait) && lockWaits < maxLockWaits:
			lockWaits++
			s.locks.beCareful()
		case isCode(err, codeLockWait):
			return translate(ctx, err)
		case conflict(err):
		case useless(err) && !reconnected:
			reconnected = true // only the connection may have failed
			s.renew()
			s.locks.abandoned()
		default:
			return translate(ctx, err)
		}
		pause(attempt)
	}
}

// attempt runs a transaction once. If it fails, nothing of it remains, unless the error is db.ErrOutcomeUnknown.
func (s *Store) attempt(ctx context.Context, held []string, fn func(db.Tx) error) error {
	s.locks.begin()
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	server, n := s.name.next()
	t := &tx{Conn: conn, ctx: ctx, server: server, n: n, store: s, held: held}
	if err = fn(t); err == nil && s.group.Load() {
		err = confirm(ctx, conn) // what is refused is not written, so the group does not see it
	}
	if err != nil || len(t.script) == 0 {
		t.rollback()
		if err == nil { // what it answers was only read
			err = s.awaitDurable(ctx)
		}
		return err
	}
	err = t.commit()
	if err != nil {
		rolledBack := t.rollback()
		if !outcomeOpen(err) {
			if !rolledBack {
				s.name.change()
			}
			return err
		}
		if err := s.outcome(ctx, t, err); err != nil {
			return err
		}
	} else {
		s.name.committed(t.rows, t.size)
	}
	s.holders.remember(t.queues)
	s.refused.done(t.renewed)
	s.refusedSessions.done(t.resumable)
	return nil
}

// commit sends what is left to write, and COMMIT behind it.
func (t *tx) commit() error {
	t.script.add("COMMIT")
	return t.send()
}

// send sends what has been collected.
func (t *tx) send() error {
	err := t.script.exec(t.ctx, t.Conn, t.store.packets())
	t.script = nil
	return err
}

// rollbackTimeout is how long to wait for a ROLLBACK before the connection is dropped,
// which has the same effect.
const rollbackTimeout = time.Second

// rollback reports whether the database has confirmed it.
func (t *tx) rollback() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), rollbackTimeout)
	defer cancel()
	_, err := t.ExecContext(ctx, "ROLLBACK")
	if err != nil {
		_ = t.Raw(func(any) error { return driver.ErrBadConn })
	}
	return err == nil
}

// Load implements db.Tx. The rows of the sessions and then of the resources are locked before anything else is read,
// and READ COMMITTED makes each later statement see everything committed until then. The floor is read after the rows:
// whoever deletes a row raises the floor with it.
func (t *tx) Load(wanted db.Wanted) (*claim.Queues, error) {
	sessions, err := t.lockSessions(wanted)
	if err != nil {
		return nil, err
	}
	named, err := t.resourcesOf(sessions.addClaims(wanted.Claims))
	if err != nil {
		return nil, err
	}
	names := slices.Clone(wanted.Resources)
	for _, resource := range named {
		names = append(names, resource)
	}
	slices.Sort(names)
	names = slices.Compact(names)

	rows, meta, left, err := t.lockResources(names)
	if err != nil {
		return nil, err
	}
	qs := claim.NewQueues(meta.instant(), len(names))
	for _, row := range rows {
		qs.Put(claim.NewQueue(row, meta.floor, t.waiters))
	}
	refuse(qs, left, named)
	sessions.put(qs)
	if err := t.loadClaims(qs, rows, named, wanted); err != nil {
		return nil, err
	}
	part, err := t.loadDue(qs, rows)
	if err != nil {
		return nil, err
	}
	t.renewed = t.store.refused.renewHolders(qs, rows, left, part)
	t.resumable = t.store.refusedSessions.renew(qs.Now, sessions.left, qs.RenewSession)
	return qs, nil
}

// loadClaims adds the exclusive holders, and the claims that commands name. A holder
// whose cached copy is valid is not read.
func (t *tx) loadClaims(qs *claim.Queues, rows map[string]claim.Row, named map[string]string, wanted db.Wanted) error {
	var whole, short []string
	want := func(id string, all bool) {
		if _, named := slices.BinarySearch(wanted.WholeClaims, id); all || named {
			whole = append(whole, id)
		} else {
			short = append(short, id)
		}
	}
	for _, row := range rows {
		if row.Holder == "" {
			continue
		}
		if holder := t.store.holders.get(row); holder != nil {
			qs.Add(holder)
		} else {
			_, all := slices.BinarySearch(wanted.WholeHolders, row.Resource)
			want(row.Holder, all)
		}
	}
	for id, resource := range named {
		if row, ok := rows[resource]; ok && row.Holder != id {
			want(id, false)
		}
	}
	return t.readClaims(qs, whole, short)
}

// readClaims adds claims by their ids: some with all their data, others without long data.
func (t *tx) readClaims(qs *claim.Queues, whole, short []string) error {
	var read script
	for chunk := range chunks(whole) {
		read.add(fmt.Sprintf(wholeClaimsSQL, marks(len(chunk))), anys(chunk)...)
	}
	for chunk := range chunks(short) {
		read.add(fmt.Sprintf(shortClaimsSQL, marks(len(chunk))), anys(chunk)...)
	}
	return read.query(t.ctx, t.Conn, t.store.packets(), func(_ int, rows *sql.Rows) error {
		c, err := scanShort(rows)
		if err == nil {
			qs.Add(c)
		}
		return err
	})
}

// resourcesOf returns the resource of each claim that there is.
func (t *tx) resourcesOf(ids []string) (found map[string]string, err error) {
	found = make(map[string]string, len(ids))
	for chunk := range chunks(ids) {
		query := "SELECT id, resource FROM claims WHERE id IN " + marks(len(chunk))
		err = each(t.ctx, t, query, anys(chunk), func(rows *sql.Rows) error {
			var id, resource string
			err := rows.Scan(&id, &resource)
			found[id] = resource
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// The queue of a resource is in claims_line, in the order of positions: waiting claims and shared holders.
const (
	waits  = "line = ? AND sharing IS NULL"
	shares = "line IS NULL AND sharing = ?"
)

const wholeClaimsSQL = "SELECT " + claimColumns + ", FALSE FROM claims WHERE id IN %s"

const lockSQL = "SELECT name, version, " + rowColumns + " FROM resources FORCE INDEX (PRIMARY) WHERE name IN %s ORDER BY name FOR UPDATE"

var (
	shortClaimsSQL = "SELECT " + shortColumns + " FROM claims WHERE id IN %s"

	waitersSQL   = "SELECT " + shortColumns + " FROM claims FORCE INDEX (claims_line) WHERE " + waits + " AND position > ? ORDER BY position LIMIT ?"
	sharedDueSQL = "SELECT " + shortColumns + " FROM claims FORCE INDEX (claims_sharing) WHERE sharing = ? AND deadline <= ? LIMIT ?"
)

// skipLocked behind lockSQL leaves out rows that another transaction has locked.
const skipLocked = " SKIP LOCKED"

// lockResources locks resources and reads the clocks. A resource without a row has one with Version 0. left are the
// names that could not be locked.
func (t *tx) lockResources(names []string) (rows map[string]claim.Row, m meta, left []string, err error) {
	rows = make(map[string]claim.Row, len(names))
	for _, name := range names {
		rows[name] = claim.Row{Resource: name}
	}
	l := &locking{lockTable: &t.store.locks.resources, meta: &m, row: func(found *sql.Rows) (string, error) {
		var row claim.Row
		err := found.Scan(append([]any{&row.Resource, &row.Version}, rowInto(&row)...)...)
		rows[row.Resource] = row
		return row.Resource, err
	}}
	isHeld := func(name string) bool { return slices.Contains(t.held, name) }
	left, err = t.lock(l, slices.DeleteFunc(slices.Clone(names), isHeld))
	for _, name := range names {
		if isHeld(name) {
			left = append(left, name)
		}
	}
	for _, name := range left {
		delete(rows, name)
	}
	return rows, m, left, err
}

// loadDue adds the shared holders that are due. part are the resources that may have more of them.
func (t *tx) loadDue(qs *claim.Queues, rows map[string]claim.Row) (part map[string]bool, err error) {
	left := db.MaxDue
	for name, row := range rows {
		if row.Shared == 0 {
			continue
		}
		limit := max(1, left)
		due, err := collect(t.ctx, t, sharedDueSQL, []any{name, qs.Now.DueBefore(), limit}, scanShort)
		if err != nil {
			return nil, err
		}
		left -= len(due)
		if len(due) == limit {
			if part == nil {
				part = make(map[string]bool)
			}
			part[name] = true
		}
		for _, c := range due {
			qs.Add(c)
		}
	}
	return part, nil
}

// waiters is the claim.MoreWaiters of the queues of this transaction.
func (t *tx) waiters(resource string, after uint64) ([]*claim.Claim, error) {
	return collect(t.ctx, t, waitersSQL, []any{resource, after, waitersChunk}, scanShort)
}

// outcomeOpen reports whether a failed commit may have been done. A member of a group that leaves it rolls back
// transactions that wait for the group's answer, with the same codes as for a conflict; the others may have them by
// then, and return them when the member comes back. A statement that is killed may have been the COMMIT.
func outcomeOpen(err error) bool {
	return broken(err) || isCode(err, openCodes...) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

var openCodes = []uint16{codeErrorDuringCommit, codeShutdown, codeInterrupted, codeKilled, codeStatementTime, codeHook, codeRollbackAtCommit}

// outcomeTimeout is how long to ask for the outcome of a commit.
const outcomeTimeout = 5 * time.Second

// outcome finds out whether a commit was done, and fixes that: see done. If it was, it is durable after a barrier. If that cannot
// be found out, the server goes on under another name, so that no number is missing in the feed.
func (s *Store) outcome(ctx context.Context, t *tx, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.outcome)
	defer cancel()
	s.renew() // these connections may be as dead as the commit's
	for {
		switch done, err := s.done(ctx, t); {
		case err != nil:
		case !done:
			s.name.committed(1, 0)
			return errors.Join(errUndone, cause)
		case !s.barriers.needed.Load() || s.commitBarrier(ctx) == nil:
			s.name.committed(t.rows, t.size)
			return nil
		}
		select {
		case <-ctx.Done():
			s.name.change()
			return errors.Join(db.ErrOutcomeUnknown, cause)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

const (
	// undoneSQL writes the row of the feed of a commit that was not done: the only one whose changes are empty.
	undoneSQL = "INSERT INTO feed (server, n, at, changes) VALUES (?, ?, " + nowSQL + ", '')"
	doneSQL   = "SELECT changes <> '' FROM feed WHERE server = ? AND n = ?"
)

// done reports whether a commit was done, and fixes that: it inserts the commit's row of the feed. While the commit is
// under way the database makes this wait. If the row exists, the commit was done, unless the row is from a call of this before, whose
// answer was lost; if this inserts it, the commit was not done and never will be.
func (s *Store) done(ctx context.Context, t *tx) (done bool, err error) {
	_, err = s.control.ExecContext(ctx, undoneSQL, t.server, t.n)
	if isCode(err, codeDuplicate) {
		err = s.scanRow(ctx, s.control, doneSQL, []any{t.server, t.n}, &done)
	}
	return done, err
}
