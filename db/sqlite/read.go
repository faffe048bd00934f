package sqlite

import (
	"context"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// read runs a query on a reading connection and calls row for each of its rows.
func (s *Store) read(ctx context.Context, sql string, row func(*sqlite.Stmt), args ...any) error {
	return s.reading(ctx, func(conn *sqlite.Conn) error { return each(conn, sql, row, args...) })
}

// reading runs fn with a reading connection.
func (s *Store) reading(ctx context.Context, fn func(*sqlite.Conn) error) error {
	conn, err := s.readers.Take(ctx)
	if err != nil {
		return unavailable(ctx, err)
	}
	defer s.readers.Put(conn)
	if err := s.file.check(); err != nil {
		return err
	}
	if err := fn(conn); err != nil {
		return unavailable(ctx, err)
	}
	return nil
}

// each runs a query and calls row for each of its rows.
func each(conn *sqlite.Conn, sql string, row func(*sqlite.Stmt), args ...any) error {
	stmt, err := conn.Prepare(sql)
	if err != nil {
		return err
	}
	return query(stmt, func() { row(stmt) }, args...)
}

// unavailable returns the error of the context if it has one: it is the cause then.
func unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
}

func (s *Store) readClaims(ctx context.Context, sql string, args ...any) ([]claim.Claim, error) {
	return s.readPage(ctx, 0, sql, args...)
}

// readPage is readClaims with a budget of so many bytes.
func (s *Store) readPage(ctx context.Context, bytes int, sql string, args ...any) (claims []claim.Claim, err error) {
	budget := db.Budget(bytes)
	err = s.reading(ctx, func(conn *sqlite.Conn) error {
		stmt, err := conn.Prepare(sql)
		if err != nil {
			return err
		}
		return queryUntil(stmt, func() (more bool) {
			c := scan(stmt)
			claims = append(claims, *c)
			return budget.Take(c)
		}, args...)
	})
	return claims, err
}

func (s *Store) readClaim(ctx context.Context, sql string, args ...any) (claim.Claim, error) {
	claims, err := s.readClaims(ctx, sql, args...)
	if err == nil && len(claims) == 0 {
		err = claim.ErrNotFound
	}
	if err != nil {
		return claim.Claim{}, err
	}
	return claims[0], nil
}

const (
	getSQL = "SELECT " + claimColumns + " FROM claims WHERE id = ?"
	// holderSQL is one statement, so that it sees one state of a resource that is handed
	// on. Claims are granted in the order of their positions.
	holderSQL = "SELECT " + claimColumns + ` FROM claims WHERE id = coalesce(
		(SELECT nullif(holder, '') FROM resources WHERE name = ?1),
		(SELECT id FROM claims WHERE resource = ?1 AND status = 2 AND mode = 1 ORDER BY position LIMIT 1))`
	aheadSQL = "SELECT count(*) FROM (SELECT 1 FROM claims WHERE resource = ? AND status = 1 AND position < ?" + limitSQL + ")"
	heldSQL  = "SELECT " + claimColumns + " FROM claims WHERE status = 2 AND type = ?"
	// The ids come from the index alone, so a page costs what all ids of the type cost, not all claims.
	heldPageSQL = "SELECT " + claimColumns + ` FROM claims WHERE id IN (
		SELECT id FROM claims INDEXED BY claims_held WHERE status = 2 AND type = ? AND id > ? ORDER BY id` + limitSQL + ") ORDER BY id"
	countSQL = `SELECT (SELECT count(*) FROM claims WHERE status = 1), (SELECT count(*) FROM claims WHERE status = 2),
		(SELECT count(*) FROM claims INDEXED BY claims_finished WHERE status > 2)`
	oldestWaitingSQL = "SELECT coalesce(min(position), 0) FROM claims INDEXED BY claims_waiting WHERE status = 1"
	cutoffSQL        = "SELECT finished FROM claims WHERE status > 2 ORDER BY finished DESC LIMIT 1 OFFSET ?"
)

// Get implements db.Reader.
func (s *Store) Get(ctx context.Context, id string) (claim.Claim, claim.Instant, error) {
	c, err := s.readClaim(ctx, getSQL, id)
	return c, s.instant(), err
}

// Holder implements db.Reader.
func (s *Store) Holder(ctx context.Context, resource string) (claim.Claim, error) {
	return s.readClaim(ctx, holderSQL, resource)
}

// Held implements db.Reader.
func (s *Store) Held(ctx context.Context, t claim.Type, page db.Page) ([]claim.Claim, error) {
	if page.Limit == 0 {
		return s.readPage(ctx, page.Bytes, heldSQL, uint8(t))
	}
	return s.readPage(ctx, page.Bytes, heldPageSQL, uint8(t), page.After, page.Limit)
}

// Ahead implements db.Reader.
func (s *Store) Ahead(ctx context.Context, resource string, enqueued uint64, limit int) (n int, err error) {
	err = s.read(ctx, aheadSQL, func(row *sqlite.Stmt) { n = row.ColumnInt(0) }, resource, int64(enqueued), limit)
	return n, err
}

// Count implements db.Reader.
func (s *Store) Count(ctx context.Context) (counts db.Counts, err error) {
	err = s.read(ctx, countSQL, func(row *sqlite.Stmt) {
		counts = db.Counts{Waiting: row.ColumnInt64(0), Active: row.ColumnInt64(1), Finished: row.ColumnInt64(2)}
	})
	return counts, err
}

// OldestWaiting implements db.Pruner.
func (s *Store) OldestWaiting(ctx context.Context) (enqueued uint64, err error) {
	err = s.read(ctx, oldestWaitingSQL, func(row *sqlite.Stmt) { enqueued = uint64(row.ColumnInt64(0)) })
	return enqueued, err
}

// HistoryCutoff implements db.Reader.
func (s *Store) HistoryCutoff(ctx context.Context, keep int) (at claim.Time, err error) {
	err = s.read(ctx, cutoffSQL, func(row *sqlite.Stmt) { at = claim.Time(row.ColumnInt64(0)) }, keep-1)
	return at, err
}
