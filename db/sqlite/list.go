package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// fewLive is up to how many claims that wait, or that are active, a list looks up one by one.
// It takes 10 ms then, instead of a second for all of a history of a million. When there are
// more, a page of them is soon found in the order of creation.
const fewLive = 10_000

const (
	// listTimeout is how long a list may take. A list that takes longer reads too much.
	listTimeout = 5 * time.Second
	// maxOffset is how many claims an index skips for a list that counts as cheap.
	maxOffset = 10_000
)

// List implements db.Reader. A list that an index answers reads little more than it returns. Others
// may read everything: only some of these run at once, so that they leave processors and
// connections to the rest, and all of them end after listTimeout.
func (s *Store) List(ctx context.Context, f db.Filter) ([]claim.Claim, claim.Instant, error) {
	now := s.instant()
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, db.ErrListTooLong)
	defer cancel()
	few, err := s.few(ctx, f)
	if err != nil {
		return nil, now, err
	}
	if scans(f, few) {
		done, err := s.acquireScan(ctx)
		if err != nil {
			return nil, now, err
		}
		defer done()
	}
	sql, args := listSQL(f, few, now)
	claims, err := s.readPage(ctx, f.Bytes, sql, args...)
	return claims, now, err
}

// acquireScan returns when there is room for a list that may read much.
func (s *Store) acquireScan(ctx context.Context) (done func(), err error) {
	select {
	case s.scanning <- struct{}{}:
		return func() { <-s.scanning }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// scans reports whether a list may read many more claims than it returns.
func scans(f db.Filter, few bool) bool {
	switch {
	case few, f.Resource != nil && f.Live():
		return false
	case f.Resource != nil, f.Prefix != "", f.Owner != nil, f.Mode != nil, f.Offset > maxOffset, f.Bounded():
		return true
	default:
		return len(f.Statuses) > 0 && !ended(f)
	}
}

// ended reports whether a filter lets claims of one final status pass.
func ended(f db.Filter) bool { return len(f.Statuses) == 1 && f.Statuses[0].Final() }

// few reports whether a filter lets live claims pass only, and there are few of these, or few under its prefix.
// It decides only how to read: an answer that is out of date costs time, and changes no result.
func (s *Store) few(ctx context.Context, f db.Filter) (few bool, err error) {
	if !f.Live() || f.Resource != nil {
		return false, nil
	}
	count, args := countFewSQL(f)
	err = s.read(ctx, count, func(row *sqlite.Stmt) { few = row.ColumnInt(0) <= fewLive }, args...)
	return few, err
}

// countFewSQL counts up to fewLive+1 of the rows that are read where the live claims of a filter are few.
func countFewSQL(f db.Filter) (sql string, args []any) {
	if f.Prefix != "" {
		return countOfPrefixSQL, []any{f.Prefix, db.PrefixEnd(f.Prefix), fewLive + 1}
	}
	return "SELECT count(*) FROM (SELECT 1 FROM " + liveSQL(f.Statuses) + limitSQL + ")", []any{fewLive + 1}
}

// fewOf is where the live claims of a filter are, if they are few.
func fewOf(f db.Filter) (from string, args []any) {
	if f.Prefix != "" {
		return liveOfPrefixSQL, []any{f.Prefix, db.PrefixEnd(f.Prefix)}
	}
	return liveSQL(f.Statuses), nil
}

// listSQL returns the statement for a filter, with its arguments.
func listSQL(f db.Filter, few bool, now claim.Instant) (sql string, args []any) {
	from, args := candidates(f, few)
	clause, more := f.SQL(now)
	return "SELECT " + claimColumns + " FROM " + from + clause, append(args, more...)
}

const (
	liveOfResourceSQL = `(SELECT * FROM claims WHERE id IN (
		SELECT holder FROM resources WHERE name = ?1
		UNION ALL SELECT id FROM claims WHERE resource = ?1 AND status = 1
		UNION ALL SELECT id FROM claims WHERE resource = ?1 AND status = 2 AND mode = 1))`
	liveOfPrefixSQL = `(SELECT * FROM claims WHERE id IN (
		SELECT holder FROM resources WHERE name >= ?1 AND name < ?2
		UNION ALL SELECT id FROM claims INDEXED BY claims_waiting WHERE resource >= ?1 AND resource < ?2 AND status = 1
		UNION ALL SELECT id FROM claims INDEXED BY claims_holding WHERE resource >= ?1 AND resource < ?2 AND status = 2 AND mode = 1))`
	countOfPrefixSQL = `SELECT count(*) FROM (
		SELECT 1 FROM resources WHERE name >= ?1 AND name < ?2
		UNION ALL SELECT 1 FROM claims INDEXED BY claims_waiting WHERE resource >= ?1 AND resource < ?2 AND status = 1
		UNION ALL SELECT 1 FROM claims INDEXED BY claims_holding WHERE resource >= ?1 AND resource < ?2 AND status = 2 AND mode = 1 LIMIT ?3+0)`
	ofResourceSQL = "(SELECT * FROM claims WHERE id IN (SELECT id FROM claims INDEXED BY claims_created WHERE resource = ?))"
	ofOwnerSQL    = "(SELECT * FROM claims WHERE id IN (SELECT id FROM claims INDEXED BY claims_created WHERE owner = ?))"
	byCreationSQL = "claims INDEXED BY claims_created"
)

// endedSQL is where all claims of a final status are, in the order of their creation.
// Without the first condition, the index cannot be used.
func endedSQL(status claim.Status) string {
	return fmt.Sprintf("(SELECT * FROM claims INDEXED BY claims_ended WHERE status > 2 AND status = %d)", status)
}

// liveSQL is where all claims of live statuses are. The status is spelled out, or else the
// index cannot be used.
func liveSQL(statuses []claim.Status) string {
	var of []string
	if slices.Contains(statuses, claim.Waiting) {
		of = append(of, "SELECT * FROM claims INDEXED BY claims_waiting WHERE status = 1")
	}
	if slices.Contains(statuses, claim.Active) {
		of = append(of, "SELECT * FROM claims INDEXED BY claims_held WHERE status = 2")
	}
	return "(" + strings.Join(of, " UNION ALL ") + ")"
}

// candidates returns where to look for the claims of a filter. The live claims of a
// resource are found by its row and by the line, all live claims, or those of a prefix, when they are few, by
// their own indexes, and those of a final status by theirs. The finished ones of a resource, and
// those of an owner, are found by reading the whole index of creation times, but not the table. Left to itself, SQLite looks up and sorts all
// active claims for a small page of them, and all that have ever been for a large one.
func candidates(f db.Filter, few bool) (from string, args []any) {
	switch {
	case f.Resource != nil && f.Live():
		return liveOfResourceSQL, []any{*f.Resource}
	case f.Resource != nil:
		return ofResourceSQL, []any{*f.Resource}
	case few:
		return fewOf(f)
	case f.Owner != nil:
		return ofOwnerSQL, []any{*f.Owner}
	case ended(f):
		return endedSQL(f.Statuses[0]), nil
	default:
		return byCreationSQL, nil
	}
}
