package sqlite

import (
	"context"

	"github.com/locket-service/locket/internal/claim"
)

// Prune implements db.Store.
func (s *Store) Prune(ctx context.Context, before claim.Time, limit int) (n int, err error) {
	err = s.write(ctx, func() error {
		if err := run(s.writer.pruneOf, int64(before), limit); err != nil {
			return err
		}
		err := run(s.writer.prune, int64(before), limit)
		n = s.conn.Changes()
		return err
	}, nil)
	return n, err
}

// PruneResources implements db.Store.
func (s *Store) PruneResources(ctx context.Context, after string, before claim.Time, limit int) (next string, err error) {
	var floor uint64
	err = s.write(ctx, func() error {
		floor = s.floor
		var unused []string
		seen := 0
		walk := s.writer.walk
		err := query(walk, func() {
			seen++
			next = walk.ColumnText(0)
			if version := uint64(walk.ColumnInt64(1)); walk.ColumnBool(2) && version < uint64(before) {
				unused = append(unused, next)
				floor = max(floor, version)
			}
		}, after, limit)
		if err != nil {
			return err
		}
		if seen < limit {
			next = ""
		}
		for _, name := range unused {
			if err := run(s.writer.deleteResource, name); err != nil {
				return err
			}
		}
		if floor == s.floor {
			return nil
		}
		return run(s.writer.raiseFloor, int64(floor))
	}, func() { s.floor = floor })
	return next, err
}
