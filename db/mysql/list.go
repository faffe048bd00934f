package mysql

import (
	"context"
	"database/sql"
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// fewLive is up to how many claims that wait, or that are active, a list reads one by one.
// It takes 15 ms then, instead of a second for all of a history of a million. When there are
// more, a page of them is soon found in the order of creation.
const fewLive = 10_000

const (
	// maxScans is how many lists that no index answers run at the database at once.
	maxScans = 2
	// maxOffset is how many claims an index skips for a list that counts as cheap.
	maxOffset = 10_000
)

// List implements db.Reader. A list that an index answers reads little more than it returns.
// Others may read everything: maxScans of them run at once, and each ends after listTime.
func (s *Store) List(ctx context.Context, f db.Filter) ([]claim.Claim, claim.Instant, error) {
	now, few, err := s.few(ctx, f)
	if err != nil {
		return nil, now, err
	}
	query, args := listSQL(f, few, now)
	if !mayScan(f, few) {
		claims, err := s.readPage(ctx, f.Bytes, query, args...)
		return claims, now, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.list, db.ErrListTooLong)
	defer cancel()
	claims, err := s.scan(ctx, f.Bytes, query, args)
	return claims, now, err
}

// scan runs a list that may read everything, when it is its turn. A statement whose caller has
// left still runs at the database until it ends there: so long it counts.
func (s *Store) scan(ctx context.Context, bytes int, query string, args []any) ([]claim.Claim, error) {
	select {
	case s.scans <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type result struct {
		claims []claim.Claim
		err    error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-s.scans }()
		claims, err := s.readPage(context.WithoutCancel(ctx), bytes, query, args...)
		done <- result{claims, err}
	}()
	select {
	case r := <-done:
		return r.claims, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// mayScan reports whether a list may read many more claims than it returns.
func mayScan(f db.Filter, few bool) bool {
	switch {
	case few, f.Resource != nil && f.Live():
		return false
	default:
		return f.Resource != nil || f.Prefix != "" || f.Owner != nil || f.Units != nil || len(f.Statuses) > 0 || f.Offset > maxOffset || f.Bounded()
	}
}

// few reads the clocks, and reports whether a filter lets live claims pass only, and there are few of
// these, or few under its prefix. It only chooses how to read: the result is right even when the number
// has changed since.
func (s *Store) few(ctx context.Context, f db.Filter) (now claim.Instant, few bool, err error) {
	if !f.Live() || f.Resource != nil {
		now, err = s.Now(ctx)
		return now, false, err
	}
	var m meta
	count, args := countFewSQL(f)
	err = s.withRetry(ctx, s.reader, func(conn *sql.Conn) (err error) {
		m, err = scanMeta(conn.QueryRowContext(ctx, count, args...), &few)
		return err
	})
	return s.shown(m), few, listError(ctx, err)
}

// countFewSQL asks whether few rows are read where the live claims of a filter are. It reads little more than fewLive.
func countFewSQL(f db.Filter) (query string, args []any) {
	rows, args := "SELECT 1 FROM "+liveSQL(f.Statuses)+" LIMIT ?", []any{fewLive + 1, fewLive}
	if f.Prefix != "" {
		end := db.PrefixEnd(f.Prefix)
		rows, args = rowsOfPrefixSQL, []any{f.Prefix, end, fewLive + 1, f.Prefix, end, fewLive + 1, f.Prefix, end, fewLive + 1, fewLive}
	}
	return "SELECT (SELECT COUNT(*) FROM (" + rows + ") live) <= ?, " + metaColumns + " FROM meta WHERE one = 1", args
}

// listSQL returns the statement for a filter, with its arguments.
func listSQL(f db.Filter, few bool, now claim.Instant) (query string, args []any) {
	from, args := candidates(f, few)
	clause, more := f.SQL(now)
	return "SELECT " + claimColumns + " FROM (SELECT claims.* FROM " + from + ") claims" + clause, append(args, more...)
}

const (
	liveOfResourceSQL = `(SELECT holder AS id FROM resources WHERE name = ?
		UNION ALL SELECT id FROM claims FORCE INDEX (claims_line) WHERE ` + waits + `
		UNION ALL SELECT id FROM claims FORCE INDEX (claims_line) WHERE ` + shares + `) live
		STRAIGHT_JOIN claims ON claims.id = live.id`
	liveOfPrefixSQL = `(SELECT holder AS id FROM resources WHERE name >= ? AND name < ?
		UNION ALL SELECT id FROM claims FORCE INDEX (claims_line) WHERE line >= ? AND line < ?
		UNION ALL SELECT id FROM claims FORCE INDEX (claims_line) WHERE line IS NULL AND sharing >= ? AND sharing < ?) live
		STRAIGHT_JOIN claims ON claims.id = live.id`
	rowsOfPrefixSQL = `(SELECT 1 FROM resources WHERE name >= ? AND name < ? LIMIT ?)
		UNION ALL (SELECT 1 FROM claims FORCE INDEX (claims_line) WHERE line >= ? AND line < ? LIMIT ?)
		UNION ALL (SELECT 1 FROM claims FORCE INDEX (claims_line) WHERE line IS NULL AND sharing >= ? AND sharing < ? LIMIT ?)`
	// The condition, which is always true, makes it a range: only there does the database compare resource and owner in
	// the index, and read the table for matches only.
	byCreationSQL = "claims FORCE INDEX (claims_created) WHERE created > 0"
)

// liveSQL is where all claims of live statuses are.
func liveSQL(statuses []claim.Status) string {
	const from = "claims FORCE INDEX (claims_phase) WHERE phase "
	switch {
	case !slices.Contains(statuses, claim.Active):
		return from + "= 1"
	case !slices.Contains(statuses, claim.Waiting):
		return from + "> 1"
	default:
		return from + ">= 1"
	}
}

// fewOf is where the live claims of a filter are, if they are few.
func fewOf(f db.Filter) (from string, args []any) {
	if f.Prefix == "" {
		return liveSQL(f.Statuses), nil
	}
	end := db.PrefixEnd(f.Prefix)
	return liveOfPrefixSQL, []any{f.Prefix, end, f.Prefix, end, f.Prefix, end}
}

// candidates returns where to look for the claims of a filter. Live claims of a resource are found by its row and its
// queue. So are live claims with a prefix, when they are few. Other live claims are found by their phase, and all
// others in order of creation. By itself the database prefers that order under a LIMIT, however many claims it reads in
// vain, or scans the table.
func candidates(f db.Filter, few bool) (from string, args []any) {
	switch {
	case f.Resource != nil && f.Live():
		return liveOfResourceSQL, []any{*f.Resource, *f.Resource, *f.Resource}
	case few:
		return fewOf(f)
	default:
		return byCreationSQL, nil
	}
}
