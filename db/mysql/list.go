package mysql

import (
	"context"
	"database/sql"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
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
	if !scans(f, few) {
		claims, err := s.readPage(ctx, f.Bytes, query, args...)
		return claims, now, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listTime, db.ErrListTooLong)
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

// scans reports whether a list may read many more claims than it returns.
func scans(f db.Filter, few bool) bool {
	switch {
	case few, f.Resource != nil && f.Status.Live():
		return false
	case f.Resource != nil, f.Owner != nil, f.Mode != nil, f.Status != 0, f.Offset > maxOffset:
		return true
	default:
		return f.MinActive != nil || f.MaxActive != nil || f.MinWaiting != nil || f.MaxWaiting != nil || f.MinTTL != nil || f.MaxTTL != nil
	}
}

// few reads the clocks, and reports whether a filter lets live claims of one status pass, and
// there are few of these. It only
// chooses how to read: the result is right even when the number has changed since.
func (s *Store) few(ctx context.Context, f db.Filter) (now claim.Instant, few bool, err error) {
	if !f.Status.Live() || f.Resource != nil {
		now, err = s.Now(ctx)
		return now, false, err
	}
	var m meta
	err = s.again(ctx, s.reader, func(conn *sql.Conn) (err error) {
		m, err = scanMeta(conn.QueryRowContext(ctx, countLiveSQL(f.Status), fewLive+1, fewLive), &few)
		return err
	})
	return s.shown(m), few, readError(ctx, err)
}

func countLiveSQL(status claim.Status) string {
	return "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM " + liveSQL(status) + " LIMIT ?) live) <= ?, " + metaColumns + " FROM meta WHERE one = 1"
}

// listSQL returns the statement for a filter, with its arguments.
func listSQL(f db.Filter, few bool, now claim.Instant) (query string, args []any) {
	from, args := candidates(f, few)
	clause, more := filterSQL(f, now)
	return "SELECT " + claimColumns + " FROM (SELECT claims.* FROM " + from + ") claims" + clause, append(args, more...)
}

const (
	liveOfResourceSQL = `(SELECT holder AS id FROM resources WHERE name = ?
		UNION ALL SELECT id FROM claims FORCE INDEX (claims_line) WHERE ` + waits + `
		UNION ALL SELECT id FROM claims FORCE INDEX (claims_line) WHERE ` + shares + `) live
		STRAIGHT_JOIN claims ON claims.id = live.id`
	// The condition, which is always true, makes it a range: only there does the database
	// compare resource and owner in the index, and read the table for what passes.
	byCreationSQL = "claims FORCE INDEX (claims_created) WHERE created > 0"
)

// liveSQL is where all claims of a live status are.
func liveSQL(status claim.Status) string {
	if status == claim.Waiting {
		return "claims FORCE INDEX (claims_phase) WHERE phase = 1"
	}
	return "claims FORCE INDEX (claims_phase) WHERE phase > 1"
}

// candidates returns where to look for the claims of a filter. The live claims of a resource
// are found by its row and by the line, and all live claims, when they are few, by their
// phase. All others are found in the order of creation. The database left to itself prefers
// that order under a LIMIT, however many claims it reads unnecessarily, or scans the table.
func candidates(f db.Filter, few bool) (from string, args []any) {
	switch {
	case f.Resource != nil && f.Status.Live():
		return liveOfResourceSQL, []any{*f.Resource, *f.Resource, *f.Resource}
	case few:
		return liveSQL(f.Status), nil
	default:
		return byCreationSQL, nil
	}
}
