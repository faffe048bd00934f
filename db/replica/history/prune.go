package history

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Prune deletes up to limit claims that ended before a moment, oldest first, and returns how many it has deleted. If an
// index lacks the content of a damaged row, all indexes are rebuilt from the rows: otherwise the file would grow for
// ever.
func (h *History) Prune(before claim.Time, limit int) (n int, err error) {
	n, err = h.prune(before, limit)
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultCorrupt {
		if err = sqlitex.Execute(h.writer, "REINDEX", nil); err == nil {
			n, err = h.prune(before, limit)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("delete from %s: %w", h.path, err)
	}
	h.mu.Lock()
	h.count -= int64(n)
	h.mu.Unlock()
	return n, h.forgetDamage()
}

func (h *History) prune(before claim.Time, limit int) (n int, err error) {
	err = h.transaction(func() error {
		err := sqlitex.Execute(h.writer, "DELETE FROM claims WHERE rowid IN (SELECT rowid FROM claims WHERE finished < ? ORDER BY finished LIMIT ?)",
			&sqlitex.ExecOptions{Args: []any{int64(before), limit}})
		n = h.writer.Changes()
		return err
	})
	return n, err
}

// Remember implements db.Pruner.
func (h *History) Remember(now claim.Instant) (earlier []claim.Instant, err error) {
	if h.writer == nil {
		return nil, errReading
	}
	err = query(h.writer, "SELECT lease, wall FROM readings ORDER BY lease", nil, func(row *sqlite.Stmt) bool {
		earlier = append(earlier, claim.Instant{Lease: claim.Time(row.ColumnInt64(0)), Wall: claim.Time(row.ColumnInt64(1))})
		return true
	})
	if n := len(earlier); err != nil || n > 0 && earlier[n-1].Lease > now.Lease.Add(-db.ReadingInterval) {
		return earlier, err
	}
	return earlier, h.transaction(func() error {
		add := "INSERT INTO readings (lease, wall) VALUES (?, ?)"
		if err := sqlitex.Execute(h.writer, add, &sqlitex.ExecOptions{Args: []any{int64(now.Lease), int64(now.Wall)}}); err != nil {
			return err
		}
		gone := "DELETE FROM readings WHERE lease < (SELECT max(lease) FROM readings WHERE lease < ?)"
		return sqlitex.Execute(h.writer, gone, &sqlitex.ExecOptions{Args: []any{int64(now.Lease.Add(-db.ReadingAge))}})
	})
}

// Cutoff returns when the keep-th newest claim ended, or 0 when there are fewer.
func (h *History) Cutoff(ctx context.Context, keep int) (at claim.Time, err error) {
	err = h.read(ctx, "SELECT finished FROM claims ORDER BY finished DESC LIMIT 1 OFFSET ?", []any{keep - 1}, func(row *sqlite.Stmt) bool {
		at = claim.Time(row.ColumnInt64(0))
		return false
	})
	return at, err
}

// LongestTTL returns the longest TTL of a claim without a session, except in damaged rows. It reads all rows.
func (h *History) LongestTTL() (longest time.Duration, err error) {
	var wrong error
	err = h.read(context.Background(), "SELECT "+columns+" FROM claims WHERE "+intact, nil, func(row *sqlite.Stmt) bool {
		c, err := scan(row)
		if wrong = err; err == nil && c.Session == "" {
			longest = max(longest, c.TTL)
		}
		return err == nil
	})
	if err == nil && wrong != nil {
		err = h.unreadable(wrong)
	}
	return longest, err
}
