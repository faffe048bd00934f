package mysql

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// briefOrNone are briefColumns of a claim that need not be there.
const briefOrNone = "COALESCE(id, ''), COALESCE(resource, ''), COALESCE(owner, ''), COALESCE(take, 0), COALESCE(claims.units, 0), COALESCE(type, 0), COALESCE(ttl, 0), NULL, ''," +
	" COALESCE(status, 0), COALESCE(position, 0), COALESCE(token, 0), COALESCE(version, 0), COALESCE(deadline, 0), COALESCE(created, 0)," +
	" COALESCE(activated, 0), COALESCE(finished, 0), COALESCE(reason, ''), COALESCE(session, ''), COALESCE(wait_ttl, 0), COALESCE(identity, ''), COALESCE(ended_by, ''), COALESCE(allow_deadlock, FALSE)"

const (
	infoColumns = "name, version AS row_version, holder, shared, taken, units AS row_units, waiting"
	// Both subqueries order by line and position: by the position alone MySQL sorts the whole line, and by all three columns MariaDB does.
	// infoSQL is of the rows that follow it: the first holder of each resource, which need not have one (in a quarantine), its row, and since when
	// the first in line waits.
	infoSQL = "SELECT " + briefOrNone + `, name, row_version, holder, shared, taken, row_units, waiting,
		COALESCE((SELECT w.created FROM claims w FORCE INDEX (claims_line) WHERE w.line = name AND w.sharing IS NULL ORDER BY w.line, w.position LIMIT 1), 0) FROM `
	firstHolderSQL = ` r LEFT JOIN claims ON id = CASE WHEN holder <> '' THEN holder WHEN shared > 0 THEN
		(SELECT h.id FROM claims h FORCE INDEX (claims_line) WHERE h.line IS NULL AND h.sharing = name ORDER BY h.line, h.position LIMIT 1) END`

	inRangeSQL      = "name >= ? AND name <= ? AND name <> ?"
	lastResourceSQL = "SELECT name FROM resources FORCE INDEX (PRIMARY) WHERE " + inRangeSQL + " ORDER BY name LIMIT 1 OFFSET ?"
	resourcesSQL    = infoSQL + "(SELECT " + infoColumns + " FROM resources FORCE INDEX (PRIMARY) WHERE " + inRangeSQL + " AND (holder <> '' OR shared > 0 OR waiting > 0))" +
		firstHolderSQL + " ORDER BY name"

	// namesSQL goes from one resource with waiting claims to the next, by a look-up for each.
	namesSQL          = "(SELECT DISTINCT line FROM claims FORCE INDEX (claims_line) WHERE line >= ? AND line < ? LIMIT ?) contended"
	countContendedSQL = "SELECT COUNT(*) FROM " + namesSQL
	contendedSQL      = infoSQL + "(SELECT " + infoColumns + " FROM " + namesSQL + ` STRAIGHT_JOIN resources ON name = line
		WHERE waiting > 0 AND (waiting < ? OR waiting = ? AND name > ?) ORDER BY waiting DESC, name LIMIT ?)` + firstHolderSQL + " ORDER BY waiting DESC, name"
)

// Resources implements db.Resources.
func (s *Store) Resources(ctx context.Context, prefix, after string, limit int) (live []db.Resource, next string, now claim.Instant, err error) {
	from, to := max(prefix, after, beforeNames), db.PrefixEnd(prefix)
	err = s.scanRow(ctx, s.reader, lastResourceSQL, []any{from, to, max(after, beforeNames), limit - 1}, &next)
	switch {
	case err == nil:
		to = next
	case !errors.Is(err, sql.ErrNoRows):
		return nil, "", now, listError(ctx, err)
	}
	live, now, err = s.resources(ctx, prefix, resourcesSQL, from, to, max(after, beforeNames))
	return live, next, now, err
}

func (s *Store) Contended(ctx context.Context, prefix string, after *db.Contention, limit int) ([]db.Resource, claim.Instant, error) {
	if after == nil {
		after = &db.Contention{Waiting: math.MaxInt32}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.list, db.ErrListTooLong)
	defer cancel()
	from, to, found := prefix, db.PrefixEnd(prefix), 0
	err := s.scanRow(ctx, s.reader, countContendedSQL, []any{from, to, db.MaxContended + 1}, &found)
	switch {
	case err != nil:
		return nil, claim.Instant{}, listError(ctx, err)
	case found > db.MaxContended:
		return nil, claim.Instant{}, db.ErrListTooLong
	case found > db.ManyContended:
		select {
		case s.scans <- struct{}{}:
			defer func() { <-s.scans }()
		case <-ctx.Done():
			return nil, claim.Instant{}, context.Cause(ctx)
		}
	}
	return s.resources(ctx, prefix, contendedSQL, from, to, db.MaxContended, after.Waiting, after.Waiting, after.Resource, limit)
}

// resources returns the resources of an infoSQL statement with a prefix, and the time before it.
func (s *Store) resources(ctx context.Context, prefix, query string, args ...any) (list []db.Resource, now claim.Instant, err error) {
	if now, err = s.Now(ctx); err != nil {
		return nil, now, err
	}
	err = s.each(ctx, s.reader, query, args, func() { list = nil }, func(rows *sql.Rows) error {
		var first claimRow
		var r db.Resource
		err := rows.Scan(append(append(append(first.columns(), &r.Resource, &r.Version), rowInto(&r.Row)...), &r.WaitsSince)...)
		r.First = *first.done()
		if strings.HasPrefix(r.Resource, prefix) {
			list = append(list, r)
		}
		return err
	})
	return list, now, listError(ctx, err)
}
