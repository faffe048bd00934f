package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

const dueSQL = `SELECT DISTINCT c.resource FROM claims c FORCE INDEX (claims_phase) STRAIGHT_JOIN resources r ON r.name = c.resource
	WHERE c.phase IN (2, 3, 4) AND c.at <= ? AND (r.waiting > 0 OR c.at <= ?) LIMIT ?`

const abandonedSQL = "SELECT id FROM claims FORCE INDEX (claims_phase) WHERE phase = 1 AND at <= ? ORDER BY at LIMIT ?"

// forever is the deadline in claims_phase of a waiting claim without a WaitTTL.
const forever = math.MaxInt64

// nextDueSQL selects the first deadline of each type and of the waiting claims, and the first one
// after a time. Only so is the index read at its ends.
var nextDueSQL = func() string {
	var first []string
	for _, after := range []string{"at > ?", "at > 0"} {
		for _, phase := range []int{phaseWaiting, phaseActive + int(claim.Untyped), phaseActive + int(claim.Lock), phaseActive + int(claim.Presence)} {
			first = append(first, fmt.Sprintf(
				"(SELECT at FROM claims FORCE INDEX (claims_phase) WHERE phase = %d AND %s AND at < %d ORDER BY at LIMIT 1)", phase, after, forever))
		}
	}
	return strings.Join(first, " UNION ALL ")
}()

// Due implements db.Due.
func (s *Store) Due(ctx context.Context, query db.DueQuery) (o db.Overdue, err error) {
	if o.Now, err = s.Now(ctx); err != nil {
		return o, err
	}
	before := o.Now.DueBefore()
	for _, part := range []struct {
		names *[]string
		limit int
		sql   string
		args  []any
	}{
		{&o.Resources, query.Resources, dueSQL, []any{before, before.Add(-query.Idle), query.Resources}},
		{&o.Waiters, query.Waiters, abandonedSQL, []any{before, query.Waiters}},
		{&o.Sessions, query.Sessions, dueSessionsSQL, []any{before, query.Sessions}},
	} {
		if part.limit == 0 {
			continue
		}
		if *part.names, err = s.readNames(ctx, s.control, part.sql, part.args...); err != nil {
			return db.Overdue{}, err
		}
	}
	if query.Names() == 0 {
		o.Next, err = s.nextDue(ctx, o.Now, query.Idle)
	}
	return o, err
}

// nextDue returns when something will be due.
func (s *Store) nextDue(ctx context.Context, now claim.Instant, idle time.Duration) (next claim.Time, err error) {
	if now.Quarantined() { // until then nothing is due
		return now.Quarantine.Add(now.Skew), nil
	}
	args := []any{now.DueBefore(), now.DueBefore(), now.DueBefore(), now.DueBefore()}
	err = s.each(ctx, s.control, nextDueSQL, args, func() { next = 0 }, func(rows *sql.Rows) error {
		var deadline claim.Time
		err := rows.Scan(&deadline)
		next = db.Sooner(next, db.LookAt(deadline, now.DueBefore(), idle))
		return err
	})
	if err != nil {
		return 0, readError(ctx, err)
	}
	if next, err = s.nextSession(ctx, next); next != 0 {
		next = next.Add(now.Skew)
	}
	return next, readError(ctx, err)
}
