package mysql

import (
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
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

// lockTable is a table whose rows transactions lock.
type lockTable struct {
	lock     string // the SELECT that locks the rows with %s as their keys
	existing string // the SELECT of the keys out of %s that there are
	stuck    stuckRows
}

// lockTables has the lockTables of a store, in the order of locking.
type lockTables struct{ sessions, resources lockTable }

func newLockTables() lockTables {
	return lockTables{
		sessions:  lockTable{lock: lockSessionsSQL, existing: "SELECT id FROM sessions WHERE id IN %s ORDER BY id"},
		resources: lockTable{lock: lockSQL, existing: "SELECT name FROM resources WHERE name IN %s ORDER BY name"},
	}
}

func (l *lockTables) all() []*lockTable { return []*lockTable{&l.sessions, &l.resources} }

// beCareful makes the next transactions careful.
func (l *lockTables) beCareful() {
	for _, table := range l.all() {
		table.stuck.beCareful()
	}
}

// begin forgets the rows of the attempts before.
func (l *lockTables) begin() {
	for _, table := range l.all() {
		table.stuck.last = nil
	}
}

// abandoned says that the connection of the last attempt is dead, or that it was not waited for any longer. Its transaction may
// be there still, and keep its rows locked; or it has waited for a row that somebody keeps locked for longer than a transaction may take.
func (l *lockTables) abandoned() {
	l.beCareful()
	for _, table := range l.all() {
		if rows := table.stuck.last; len(rows) > 0 { // or it got no connection, and what is known of the attempt before counts
			table.stuck.noteWait(rows)
		}
	}
}

// stuckRows is how transactions treat the rows that another one keeps locked. Normally a
// transaction waits for a row's lock, and so gets it in turn. When that takes as long as the
// transaction of a lost server does, the following transactions are careful: they wait for a
// row once, refuse the commands on it from then on while it is locked, and carry out the
// others. Only the transactions of the store use it, one after the other.
type stuckRows struct {
	canSkip bool // whether the database knows SKIP LOCKED: see probeLocks
	until   time.Time
	last    []string             // the rows of the last attempt
	waited  map[string]bool      // the rows that the last attempt has waited for without success
	rows    map[string]time.Time // the stuck rows, and when each was last found locked
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

// noteWait notes that a lock on at least one of the rows was waited for without success.
func (s *stuckRows) noteWait(names []string) {
	s.waited = make(map[string]bool, len(names))
	for _, name := range names {
		s.waited[name] = true
	}
}

// isStuck reports whether a row counts as stuck.
func (s *stuckRows) isStuck(name string) bool {
	at, ok := s.rows[name]
	return ok && time.Since(at) < carefulTime
}

// without returns the rows that do not count as stuck.
func (s *stuckRows) without(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), s.isStuck)
}

// skipped records which rows were locked, and which were not. A row stays stuck while it is found locked.
func (s *stuckRows) skipped(locked, others []string) {
	if s.rows == nil {
		s.rows = make(map[string]time.Time)
	}
	for _, name := range locked {
		if s.waited[name] || s.isStuck(name) {
			s.rows[name] = time.Now()
			s.beCareful()
		}
	}
	for _, name := range others {
		delete(s.rows, name)
	}
	s.waited = nil
}

// locking says how a transaction locks rows of one table.
type locking struct {
	*lockTable
	// row takes a row that was locked, and returns its key.
	row func(*sql.Rows) (key string, err error)
	// meta, unless it is nil, gets the clocks as they are read after the rows.
	meta *meta

	locked map[string]bool
}

// lock locks rows, which are sorted. It returns the keys that could not be locked.
func (t *tx) lock(l *locking, keys []string) (left []string, err error) {
	l.locked = make(map[string]bool, len(keys))
	l.stuck.last = keys
	switch careful := l.stuck.careful(); {
	case len(keys) == 0:
		if l.meta != nil {
			*l.meta, err = t.store.readMeta(t.ctx, t)
		}
		return nil, err
	case careful:
		return t.lockSome(l, keys)
	default:
		return nil, t.await(l, keys)
	}
}

// lockSome locks what no other transaction has locked. It returns the keys of the others.
func (t *tx) lockSome(l *locking, keys []string) (left []string, err error) {
	left = keys
	for begin := time.Now(); ; time.Sleep(followUpPause) {
		if left, err = t.skip(l, left); err != nil {
			return nil, err
		}
		if len(l.stuck.without(left)) == 0 || time.Since(begin) > followUp {
			break
		}
	}
	l.stuck.skipped(left, slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !l.locked[key] }))
	if others := l.stuck.without(left); len(others) > 0 {
		if err := t.await(l, others); err != nil {
			return nil, err
		}
		left = slices.DeleteFunc(left, func(key string) bool { return slices.Contains(others, key) })
	}
	return left, nil
}

// skip locks the rows that are free, and returns the keys of the locked ones.
func (t *tx) skip(l *locking, keys []string) (left []string, err error) {
	if err := t.lockRows(l, keys, skipLocked); err != nil {
		return nil, err
	}
	return t.existing(l, l.missing(keys))
}

// await locks rows, and waits for them if need be.
func (t *tx) await(l *locking, keys []string) error {
	err := t.lockRows(l, keys, "")
	if isCode(err, codeLockWait) {
		l.stuck.noteWait(l.missing(keys))
	}
	return err
}

// missing returns the keys whose rows are not locked here.
func (l *locking) missing(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return l.locked[key] })
}

// lockRows locks rows as option says, with as many statements as that takes.
func (t *tx) lockRows(l *locking, keys []string, option string) error {
	for chunk := range chunks(keys) {
		if err := t.lockChunk(l, chunk, option); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) lockChunk(l *locking, keys []string, option string) error {
	var read script
	read.add(fmt.Sprintf(l.lock, marks(len(keys)))+option, anys(keys)...)
	if l.meta != nil {
		read.add(metaSQL)
		*l.meta = meta{}
		sent := time.Now()
		defer func() { t.store.correct(l.meta, sent) }()
	}
	return read.query(t.ctx, t.Conn, t.store.packets(), func(n int, rows *sql.Rows) (err error) {
		if n == len(read)-1 && l.meta != nil {
			*l.meta, err = scanMeta(rows)
			return err
		}
		key, err := l.row(rows)
		l.locked[key] = true
		return err
	})
}

// existing returns the keys that have a row, including uncommitted ones: a transaction that inserts a row has locked
// it.
func (t *tx) existing(l *locking, keys []string) (found []string, err error) {
	for chunk := range chunks(keys) {
		some, err := t.uncommitted(fmt.Sprintf(l.existing, marks(len(chunk))), anys(chunk))
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
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
