package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Oldest returns the cut that deletes up to limit claims that ended before a moment, oldest first, and how many these are. It is called as
// Write is.
func (h *History) Oldest(before claim.Time, limit int) (cut record.Cut, n int, err error) {
	kept, args := h.kept()
	cut.Entry = h.Entry()
	args = append([]any{int64(before)}, append(args, limit)...)
	err = h.read(context.Background(), "SELECT finished, id FROM claims WHERE finished < ?"+kept+" ORDER BY finished, id LIMIT ?", args, func(row *sqlite.Stmt) bool {
		cut.Finished, cut.ID = claim.Time(row.ColumnInt64(0)), row.ColumnText(1)
		n++
		return true
	})
	return cut, n, err
}

// Cut hides the claims that a cut deletes, at once. The next Write, or Tidy, deletes them.
func (h *History) Cut(c record.Cut) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cuts.Add(c)
	h.hidden = append(slices.Clip(h.hidden), c)
}

// kept is the condition that no cut hides a claim, with its arguments.
func (h *History) kept() (condition string, args []any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var sql strings.Builder
	for _, c := range h.hidden {
		sql.WriteString(" AND NOT (" + cutSQL + ")")
		args = append(args, argsOf(c)...)
	}
	return sql.String(), args
}

// cutSQL is the condition that a cut deletes a claim.
const cutSQL = "finished <= ? AND (finished < ? OR id <= ?) AND entry <= ?"

func argsOf(c record.Cut) []any {
	return []any{int64(c.Finished), int64(c.Finished), c.ID, int64(c.Entry)}
}

// Tidied reports whether no claims are hidden.
func (h *History) Tidied() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.hidden) == 0
}

// tidyRows is how many claims one transaction deletes.
const tidyRows = 1000

// Tidy deletes the hidden claims. It is called as Write is.
func (h *History) Tidy() error {
	h.mu.Lock()
	hidden := h.hidden
	h.mu.Unlock()
	for _, c := range hidden {
		if err := h.tidy(c); err != nil {
			return fmt.Errorf("delete from %s: %w", h.path, err)
		}
	}
	if len(hidden) == 0 {
		return nil
	}
	h.mu.Lock()
	h.hidden = slices.Clone(h.hidden[len(hidden):]) // cuts are added at the end
	h.mu.Unlock()
	return h.forgetDamage()
}

// tidy deletes what a cut hides. If an index lacks the content of a damaged row, all indexes are rebuilt from the rows:
// otherwise the file would grow for ever.
func (h *History) tidy(c record.Cut) error {
	for n := tidyRows; n == tidyRows; {
		var err error
		n, err = h.delete(c)
		if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultCorrupt {
			if err = sqlitex.Execute(h.writer, "REINDEX", nil); err == nil {
				n, err = h.delete(c)
			}
		}
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.count -= int64(n)
		h.mu.Unlock()
	}
	return nil
}

func (h *History) delete(c record.Cut) (n int, err error) {
	err = h.transaction(func() error {
		err := sqlitex.Execute(h.writer, "DELETE FROM claims WHERE rowid IN (SELECT rowid FROM claims WHERE "+cutSQL+" LIMIT ?)",
			&sqlitex.ExecOptions{Args: append(argsOf(c), tidyRows)})
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
