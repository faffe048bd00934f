package sqlite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

const dueSQL = `SELECT DISTINCT c.resource FROM claims c INDEXED BY claims_held JOIN resources r ON r.name = c.resource
	WHERE c.status = 2 AND c.type IN (0, 1, 2) AND c.deadline <= ? AND (r.waiting > 0 OR c.deadline <= ?)` + limitSQL

const abandonedSQL = "SELECT id FROM claims INDEXED BY claims_patience WHERE status = 1 AND deadline > 0 AND deadline <= ? ORDER BY deadline" + limitSQL

// nextDueSQL selects the first deadline of each type and of the waiting claims, and the first one
// after a time. Only so is the index read at its ends.
var nextDueSQL = func() string {
	var first []string
	for _, after := range []string{"", " AND deadline > ?1"} {
		for _, kind := range []claim.Type{claim.Untyped, claim.Lock, claim.Presence} {
			first = append(first, fmt.Sprintf(
				"SELECT * FROM (SELECT deadline FROM claims INDEXED BY claims_held WHERE status = 2 AND type = %d%s ORDER BY deadline LIMIT 1)", kind, after))
		}
		first = append(first, fmt.Sprintf(
			"SELECT * FROM (SELECT deadline FROM claims INDEXED BY claims_patience WHERE status = 1 AND deadline > 0%s ORDER BY deadline LIMIT 1)", after))
	}
	return strings.Join(first, " UNION ALL ")
}()

// Due implements db.Due.
func (s *Store) Due(ctx context.Context, idle time.Duration, limit int) (names []string, err error) {
	now := s.instant()
	err = s.read(ctx, dueSQL, func(row *sqlite.Stmt) { names = append(names, row.ColumnText(0)) },
		int64(now.Lease), int64(now.Lease.Add(-idle)), limit)
	return names, err
}

// Abandoned implements db.Due.
func (s *Store) Abandoned(ctx context.Context, limit int) (ids []string, err error) {
	err = s.read(ctx, abandonedSQL, func(row *sqlite.Stmt) { ids = append(ids, row.ColumnText(0)) }, int64(s.instant().Lease), limit)
	return ids, err
}

// NextDue implements db.Due.
func (s *Store) NextDue(ctx context.Context, idle time.Duration) (next claim.Time, now claim.Instant, err error) {
	now = s.instant()
	err = s.read(ctx, nextDueSQL, func(row *sqlite.Stmt) {
		next = db.Sooner(next, db.LookAt(claim.Time(row.ColumnInt64(0)), now.Lease, idle))
	}, int64(now.Lease))
	if err != nil {
		return 0, now, err
	}
	next, err = s.nextSession(ctx, next)
	return next, now, err
}
