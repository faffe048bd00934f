package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

const (
	// carefulTime is for how long transactions skip locked rows after one has waited for a row
	// without success. It is longer than the database takes to end the transaction of a server
	// that was lost: see writing.
	carefulTime = 10 * time.Second
	// followUp is how long a transaction tries again to lock rows that it has skipped, before it
	// waits for them.
	followUp      = 50 * time.Millisecond
	followUpPause = 5 * time.Millisecond
	// maxLockWaits is how often a transaction waits for a lock without success before it fails.
	maxLockWaits = 2
)

// stuckRows is how transactions treat the rows that another one keeps locked. Normally a
// transaction waits for a row's lock, and so gets it in turn. When that takes as long as the
// transaction of a lost server does, the following transactions are careful: they wait for a
// row once, refuse the commands on it from then on while it is locked, and carry out the
// others. Only the transactions of the store use it, one after the other.
type stuckRows struct {
	canSkip bool // whether the database knows SKIP LOCKED
	until   time.Time
	last    []string             // the rows of the last attempt
	waited  map[string]bool      // the rows that the last attempt has waited for without success
	rows    map[string]time.Time // since when the rows count as stuck
}

// beCareful makes the next transactions careful.
func (s *stuckRows) beCareful() { s.until = time.Now().Add(carefulTime) }

func (s *stuckRows) careful() bool {
	if !s.canSkip || time.Now().After(s.until) {
		s.rows, s.waited = nil, nil
		return false
	}
	return true
}

// waitedFor says that a lock on at least one of the rows was waited for without success.
func (s *stuckRows) waitedFor(names []string) {
	s.waited = make(map[string]bool, len(names))
	for _, name := range names {
		s.waited[name] = true
	}
}

// without returns the rows that do not count as stuck, or no longer.
func (s *stuckRows) without(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		at, ok := s.rows[name]
		return ok && time.Since(at) < carefulTime
	})
}

// abandoned says that the connection of the last attempt is dead. Its transaction may be there
// still, and keep its rows locked.
func (s *stuckRows) abandoned() {
	s.beCareful()
	s.waitedFor(s.last)
}

// skipped says which rows were locked, and which were not.
func (s *stuckRows) skipped(locked []string, others map[string]claim.Row) {
	if s.rows == nil {
		s.rows = make(map[string]time.Time)
	}
	for _, name := range s.without(locked) {
		if s.waited[name] {
			s.rows[name] = time.Now()
		}
	}
	for name := range others {
		delete(s.rows, name)
	}
	s.waited = nil
}

// detectSkipLocked finds out whether the database knows SKIP LOCKED: MariaDB from 10.6 on and
// MySQL from 8.0 on do.
func (s *Store) detectSkipLocked(ctx context.Context) error {
	_, err := s.control.ExecContext(ctx, fmt.Sprintf(lockSQL, "('')")+skipLocked)
	s.stuck.canSkip = err == nil
	if broken(err) {
		return err
	}
	return nil
}

// lockSome locks what no other transaction has locked, and reads the clocks. It returns the
// names of the others.
func (t *tx) lockSome(names []string) (l locked, left []string, err error) {
	l.rows = make(map[string]claim.Row, len(names))
	stuck := &t.store.stuck
	left = names
	for begin := time.Now(); ; time.Sleep(followUpPause) {
		if left, err = t.skip(left, &l); err != nil {
			return l, nil, err
		}
		if len(stuck.without(left)) == 0 || time.Since(begin) > followUp {
			break
		}
	}
	stuck.skipped(left, l.rows)
	if others := stuck.without(left); len(others) > 0 {
		if err := t.await(others, &l); err != nil {
			return l, nil, err
		}
		left = slices.DeleteFunc(left, func(name string) bool { return slices.Contains(others, name) })
	}
	for _, name := range names {
		if _, ok := l.rows[name]; !ok && !slices.Contains(left, name) {
			l.rows[name] = claim.Row{Resource: name}
		}
	}
	return l, left, nil
}

// skip locks what is not locked, and returns the names of what is.
func (t *tx) skip(names []string, l *locked) (left []string, err error) {
	if err := t.read(names, skipLocked, l); err != nil {
		return nil, err
	}
	return t.existing(slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := l.rows[name]; return ok }))
}

// await locks rows, and waits for them if need be.
func (t *tx) await(names []string, l *locked) error {
	err := t.read(names, "", l)
	if isCode(err, codeLockWait) {
		t.store.stuck.waitedFor(names)
	}
	return err
}

// existing returns which of the resources have a row, also one that is not committed yet: who
// inserts it has locked it.
func (t *tx) existing(names []string) (found []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	conn, err := t.store.control.Conn(t.ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	// This holds for the next transaction alone, which is the SELECT.
	if _, err := conn.ExecContext(t.ctx, "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"); err != nil {
		return nil, err
	}
	query := "SELECT name FROM resources WHERE name IN " + marks(len(names)) + " ORDER BY name"
	err = each(t.ctx, conn, query, anys(names), func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		found = append(found, name)
		return err
	})
	return found, err
}

// refuse answers the commands on resources that are locked.
func refuse(qs *claim.Queues, names []string, named map[string]string) {
	for _, name := range names {
		var ids []string
		for id, resource := range named {
			if resource == name {
				ids = append(ids, id)
			}
		}
		qs.Refuse(db.ErrRowLocked, name, ids...)
	}
}
