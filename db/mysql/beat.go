package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// A beat writes in the same tables as a renewal, with statements of the same kind, over the same connection: one
// reserved row in each that no list shows (an impossible name, no status, no creation). Whatever prevents renewals
// prevents beats too: tables that are locked or gone, rows that are all locked, a database that is full or cut off. A
// renewal adds a row to the feed; a beat inserts one where this server's next commit would go, and deletes it again,
// since the gap may be locked. It does the same in the tables of sessions, since resuming a session renews it. Of the
// index tables it only takes the table's lock: commands that need them are in the same batch as renewals.
//
// Each of these tables has two such rows, one at each end, and the feed has two numbers. A beat that has waited in vain
// for the lock of one uses the other: somebody else's lock on a single row, or on some rows and the gap behind them,
// stops no server's beats.
var beatNames = []string{"X'FF'", "X'00'"}

// beforeNames is the second of beatNames, which sorts before all names of resources.
const beforeNames = "\x00"

const (
	// makeBeatResourceSQL and makeBeatClaimSQL are for one of beatNames, and change nothing when the row is there. The holder is the id of no claim.
	makeBeatResourceSQL = "INSERT INTO resources (name, version, holder, shared, waiting) VALUES (%s, 1, X'FE', 0, 0) ON DUPLICATE KEY UPDATE version = version"
	makeBeatClaimSQL    = `INSERT INTO claims (id, resource, owner, take, units, type, ttl, value, status, position, token, version, deadline, created, activated, finished, reason)
		VALUES (%[1]s, %[1]s, '', 0, 0, 0, 0, '', 0, 0, 0, 1, 0, 0, 0, 9223372036854775807, '') ON DUPLICATE KEY UPDATE version = version`

	// beatResourceSQL and beatClaimSQL do the same, and always change the row.
	beatResourceSQL = makeBeatResourceSQL + " + 1, holder = X'FE'"
	beatClaimSQL    = makeBeatClaimSQL + " + 1"

	// beatFeedSQL and endBeatFeedSQL are for this server's name in the feed, and a number behind all of its commits.
	beatFeedSQL    = "INSERT INTO feed (server, n, at, changes) VALUES (?, ?, 0, '')"
	endBeatFeedSQL = "DELETE FROM feed WHERE server = ? AND n = ?"

	saveSeenSQL = "UPDATE servers SET seen = GREATEST(seen, ?), beats = beats + 1 WHERE name = ?"
	// saveClockSQL changes nothing when another server has beaten meanwhile.
	saveClockSQL = "UPDATE meta SET seen = ?, outage = ? WHERE one = 1 AND seen = ? AND outage = ?"
)

// beatTables are statements that change nothing, and need the locks of tables.
var beatTables = []string{
	"DELETE FROM sessions WHERE id = ''",
	"DELETE FROM session_claims WHERE claim = ''",
	"DELETE FROM owner_waits WHERE owner = '' AND claim = ''",
}

// Beat implements db.Pulse.
func (s *Store) Beat(ctx context.Context, resumes bool) error {
	next := db.Clock.Beat
	if resumes {
		next = db.Clock.Resume
	}
	registered, name := s.registeredAs.Load(), ""
	if registered != nil {
		name = *registered
	}
	err := s.beatOnce(ctx, name, next)
	if isCode(err, codeLockWait) && ctx.Err() == nil {
		s.otherBeat.Store(!s.otherBeat.Load())
		err = s.beatOnce(ctx, name, next)
	}
	if err == nil && registered != nil {
		err = s.stillRegistered(ctx, registered)
	}
	return translate(ctx, err)
}

func (s *Store) beatOnce(ctx context.Context, name string, next func(db.Clock, claim.Time) db.Clock) error {
	return s.withRetry(ctx, s.writer, func(conn *sql.Conn) error {
		t := &tx{Conn: conn, ctx: ctx, store: s}
		err := t.beat(name, next)
		if err != nil {
			t.rollback()
		}
		return err
	})
}

// makeBeatRows makes the rows that beats write in, where they are not there: on a cluster, servers that start at several nodes would end each other's
// transactions. A row that is locked is there.
func (s *Store) makeBeatRows(ctx context.Context) error {
	for _, name := range beatNames {
		for _, statement := range []string{makeBeatResourceSQL, makeBeatClaimSQL} {
			_, err := s.control.ExecContext(ctx, fmt.Sprintf(statement, name))
			if err != nil && !isCode(err, codeLockWait) {
				return err
			}
		}
	}
	return nil
}

// beatRow is the row that the next beat writes in, and its number in the feed.
func (s *Store) beatRow() (name string, n uint64) {
	if s.otherBeat.Load() {
		return beatNames[1], math.MaxInt64 - 1
	}
	return beatNames[0], math.MaxInt64
}

// beat sends its statements together with the COMMIT, so that a crashed server leaves nothing locked. Only
// a cluster takes one statement after the other.
func (t *tx) beat(name string, next func(db.Clock, claim.Time) db.Clock) error {
	m, err := t.store.readMeta(t.ctx, t)
	if err != nil {
		return err
	}
	// Another server may have beaten after the database took the time of this reading, and before it read the row.
	clock := next(m.clock, max(m.at, m.clock.Seen))
	row, n := t.store.beatRow()
	t.script.add(fmt.Sprintf(beatResourceSQL, row))
	t.script.add(fmt.Sprintf(beatClaimSQL, row))
	feed := t.store.name.get()
	t.script.add(beatFeedSQL, feed, n)
	t.script.add(endBeatFeedSQL, feed, n)
	for _, statement := range beatTables {
		t.script.add(statement)
	}
	if name != "" {
		t.script.add(saveSeenSQL, clock.Instant(m.at).Lease, name)
	}
	t.script.add(saveClockSQL, clock.Seen, clock.Outage.Microseconds(), m.clock.Seen, m.clock.Outage.Microseconds())
	return t.commit()
}

// stillRegistered returns db.ErrServerGone unless this server's row is there, after a beat. Once it was deleted it
// never comes back, so it was there during the beat too.
func (s *Store) stillRegistered(ctx context.Context, name *string) error {
	var there bool
	err := s.scanRow(ctx, s.control, "SELECT COUNT(*) FROM servers WHERE name = ?", []any{*name}, &there)
	if err == nil && !there && s.registeredAs.CompareAndSwap(name, nil) { // it may have another name by now
		err = db.ErrServerGone
	}
	return err
}
