package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

const pruneSQL = "SELECT id FROM claims WHERE phase = 0 AND at < ? ORDER BY at LIMIT ?"

// Remember implements db.Pruner.
func (s *Store) Remember(ctx context.Context, now claim.Instant) (earlier []claim.Instant, err error) {
	earlier, err = readList(ctx, s, s.control, "SELECT lease, wall FROM readings ORDER BY lease", nil, func(row scanner) (reading claim.Instant, err error) {
		err = row.Scan(&reading.Lease, &reading.Wall)
		return reading, err
	})
	n := len(earlier)
	if err != nil || n > 0 && earlier[n-1].Lease > now.Lease.Add(-db.ReadingInterval) {
		return earlier, translate(ctx, err)
	}
	if _, err := s.control.ExecContext(ctx, "INSERT IGNORE INTO readings (lease, wall) VALUES (?, ?)", now.Lease, now.Wall); err != nil {
		return nil, translate(ctx, err)
	}
	kept := slices.IndexFunc(earlier, func(r claim.Instant) bool { return r.Lease >= now.Lease.Add(-db.ReadingAge) })
	if kept < 2 { // one that is older stays
		return earlier, nil
	}
	_, err = s.control.ExecContext(ctx, "DELETE FROM readings WHERE lease < ?", earlier[kept-1].Lease)
	return earlier, translate(ctx, err)
}

// Prune implements db.Pruner. It also sweeps the feed. An ended claim that somebody keeps
// locked is left out, so that the others are deleted.
func (s *Store) Prune(ctx context.Context, before claim.Time, limit int) (int, error) {
	if err := s.sweepFeed(ctx); err != nil {
		return 0, translate(ctx, err)
	}
	query := pruneSQL
	if s.locks.resources.stuck.canSkip {
		query += " FOR UPDATE" + skipLocked
	}
	ids, err := readList(ctx, s, s.control, query, []any{before, limit}, scanName)
	if err != nil || len(ids) == 0 {
		return 0, translate(ctx, err)
	}
	n, err := affected(s.control.ExecContext(ctx, "DELETE FROM claims WHERE id IN "+marks(len(ids)), anys(ids)...))
	return n, translate(ctx, err)
}

func (s *Store) PruneResources(ctx context.Context, after string, before claim.Time, limit int) (next string, err error) {
	var unused []unusedResource
	var floor uint64
	seen := 0
	err = s.each(ctx, s.control,
		"SELECT name, version, holder = '' AND shared = 0 AND waiting = 0 FROM resources WHERE name > ? ORDER BY name LIMIT ?",
		[]any{max(after, beforeNames), limit}, func() { unused, floor, seen, next = nil, 0, 0, "" }, func(rows *sql.Rows) error {
			var r unusedResource
			var free bool
			err := rows.Scan(&r.name, &r.version, &free)
			seen++
			next = r.name
			if free && r.version < uint64(before) {
				unused = append(unused, r)
				floor = max(floor, r.version)
			}
			return err
		})
	if err != nil {
		return "", translate(ctx, err)
	}
	if len(unused) > 0 {
		if err := s.deleteResources(ctx, unused, floor); err != nil {
			return next, translate(ctx, err)
		}
	}
	if seen < limit {
		next = ""
	}
	return next, nil
}

type unusedResource struct {
	name    string
	version uint64
}

// deleteResources deletes the resources that have not changed since they were read. It
// raises the floor first, so it needs no transaction: a floor that is too high does no harm.
func (s *Store) deleteResources(ctx context.Context, unused []unusedResource, floor uint64) error {
	if _, err := s.control.ExecContext(ctx, "UPDATE meta SET floor = GREATEST(floor, ?) WHERE one = 1", floor); err != nil {
		return err
	}
	var keys []any
	for _, r := range unused {
		keys = append(keys, r.name, r.version)
	}
	rows := strings.TrimSuffix(strings.Repeat("(?,?),", len(unused)), ",")
	_, err := s.control.ExecContext(ctx, "DELETE FROM resources WHERE (name, version) IN ("+rows+")", keys...)
	return err
}
