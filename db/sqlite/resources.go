package sqlite

import (
	"context"
	"math"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

const (
	rowColumns = "name, version AS row_version, holder, shared, waiting"
	// infoSQL is of the rows that follow it: the first holder of each resource, its row, and since when the first in
	// line waits.
	infoSQL = "SELECT " + briefColumns + `, name, row_version, holder, shared, waiting,
		(SELECT w.created FROM claims w INDEXED BY claims_waiting WHERE w.resource = name AND w.status = 1 ORDER BY w.position LIMIT 1) FROM `
	firstHolderSQL = ` CROSS JOIN claims ON id = CASE WHEN holder <> '' THEN holder ELSE
		(SELECT h.id FROM claims h INDEXED BY claims_holding WHERE h.resource = name AND h.status = 2 AND h.mode = 1 ORDER BY h.position LIMIT 1) END`

	inRangeSQL      = "name >= ?1 AND name <= ?2 AND name <> ?3"
	lastResourceSQL = "SELECT name FROM resources WHERE " + inRangeSQL + " ORDER BY name LIMIT 1 OFFSET ?4+0"
	resourcesSQL    = infoSQL + "(SELECT " + rowColumns + " FROM resources WHERE " + inRangeSQL + " AND (holder <> '' OR shared > 0) ORDER BY name) r" + firstHolderSQL

	// namesSQL steps from one resource with waiting claims to the next, by a look-up for each.
	namesSQL = `WITH RECURSIVE contended (contended) AS (
		SELECT (SELECT resource FROM claims INDEXED BY claims_waiting WHERE status = 1 AND resource >= ?1 AND resource < ?2 ORDER BY resource LIMIT 1)
		UNION ALL SELECT (SELECT resource FROM claims INDEXED BY claims_waiting WHERE status = 1 AND resource > contended AND resource < ?2 ORDER BY resource LIMIT 1)
		FROM contended WHERE contended IS NOT NULL LIMIT ?3+0) `
	countContendedSQL = namesSQL + "SELECT count(contended) FROM contended"
	contendedSQL      = namesSQL + infoSQL + "(SELECT " + rowColumns + ` FROM contended CROSS JOIN resources ON name = contended
		WHERE waiting > 0 AND (waiting < ?4 OR waiting = ?4 AND name > ?5) ORDER BY waiting DESC, name LIMIT ?6+0) r` + firstHolderSQL + " ORDER BY waiting DESC, name"
)

// Resources implements db.Resources.
func (s *Store) Resources(ctx context.Context, prefix, after string, limit int) (live []db.Resource, next string, now claim.Instant, err error) {
	from, to := max(prefix, after), db.PrefixEnd(prefix)
	err = s.read(ctx, lastResourceSQL, func(row *sqlite.Stmt) { next = row.ColumnText(0) }, from, to, after, limit-1)
	if err != nil {
		return nil, "", now, err
	}
	if next != "" {
		to = next
	}
	err = s.read(ctx, resourcesSQL, func(row *sqlite.Stmt) {
		if r := scanResource(row); strings.HasPrefix(r.Resource, prefix) {
			live = append(live, r)
		}
	}, from, to, after)
	return live, next, s.instant(), err
}

// Contended implements db.Resources.
func (s *Store) Contended(ctx context.Context, prefix string, after *db.Contention, limit int) (list []db.Resource, now claim.Instant, err error) {
	if after == nil {
		after = &db.Contention{Waiting: math.MaxInt32}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, db.ErrListTooLong)
	defer cancel()
	from, to, found := prefix, db.PrefixEnd(prefix), 0
	err = s.read(ctx, countContendedSQL, func(row *sqlite.Stmt) { found = row.ColumnInt(0) }, from, to, db.MaxContended+1)
	switch {
	case err != nil:
		return nil, now, err
	case found > db.MaxContended:
		return nil, now, db.ErrListTooLong
	case found > db.ManyContended:
		done, err := s.acquireScan(ctx)
		if err != nil {
			return nil, now, err
		}
		defer done()
	}
	err = s.read(ctx, contendedSQL, func(row *sqlite.Stmt) { list = append(list, scanResource(row)) },
		from, to, db.MaxContended, after.Waiting, after.Resource, limit)
	return list, s.instant(), err
}

// scanResource reads a row of infoSQL.
func scanResource(row *sqlite.Stmt) db.Resource {
	const columns = 21 // of a claim
	return db.Resource{
		First: *scan(row),
		Row: claim.Row{
			Resource: row.ColumnText(columns), Version: uint64(row.ColumnInt64(columns + 1)), Holder: row.ColumnText(columns + 2),
			Shared: row.ColumnInt(columns + 3), Waiting: row.ColumnInt(columns + 4),
		},
		WaitsSince: claim.Time(row.ColumnInt64(columns + 5)),
	}
}
