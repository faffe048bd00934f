package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

const claimColumns = "id, resource, owner, take, units, type, ttl, user_data, value, status, position, token, version, deadline, created, activated, finished, reason, session, wait_ttl, identity, ended_by, allow_deadlock"

// briefColumns are claimColumns without large data.
const briefColumns = "id, resource, owner, take, units, type, ttl, NULL, '', status, position, token, version, deadline, created, activated, finished, reason, session, wait_ttl, identity, ended_by, allow_deadlock"

// shortColumns are claimColumns without data longer than claim.MaxBrief, and whether there is such data: see scanShort.
var shortColumns = strings.Replace(briefColumns, "NULL, ''", fmt.Sprintf(
	"CASE WHEN LENGTH(user_data) <= %[1]d THEN user_data END, CASE WHEN LENGTH(value) <= %[1]d THEN value ELSE '' END", claim.MaxBrief), 1) +
	fmt.Sprintf(", LENGTH(value) > %[1]d OR COALESCE(LENGTH(user_data) > %[1]d, 0)", claim.MaxBrief)

type rowsQuerier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each calls row for every row of a query.
func each(ctx context.Context, q rowsQuerier, query string, args []any, row func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// collect returns the rows of a query, as scan reads them.
func collect[T any](ctx context.Context, q rowsQuerier, query string, args []any, scan func(scanner) (T, error)) (all []T, err error) {
	err = each(ctx, q, query, args, func(rows *sql.Rows) error {
		one, err := scan(rows)
		all = append(all, one)
		return err
	})
	return all, err
}

// readList is collect over a connection of a pool, and restarts over a new connection when its first one is dead.
func readList[T any](ctx context.Context, s *Store, from *pool, query string, args []any, scan func(scanner) (T, error)) (all []T, err error) {
	err = s.withRetry(ctx, from, func(conn *sql.Conn) (err error) {
		all, err = collect(ctx, conn, query, args, scan)
		return err
	})
	return all, err
}

// scanName reads a row with a name or an id.
func scanName(row scanner) (name string, err error) {
	err = row.Scan(&name)
	return name, err
}

// scanClaim reads a row of claimColumns.
func scanClaim(row scanner) (claim.Claim, error) {
	var r claimRow
	err := row.Scan(r.columns()...)
	return *r.done(), err
}

// scanShort reads a row of shortColumns.
func scanShort(row scanner) (*claim.Claim, error) {
	var r claimRow
	err := row.Scan(append(r.columns(), &r.claim.Brief)...)
	return r.done(), err
}

// claimRow takes a row of claimColumns.
type claimRow struct {
	claim        claim.Claim
	ttl, waitTTL int64
}

func (r *claimRow) columns() []any {
	c := &r.claim
	return []any{
		&c.ID, &c.Resource, &c.Owner, &c.Units.Take, &c.Units.Of, &c.Type, &r.ttl, &c.UserData, &c.Value, &c.Status,
		&c.Enqueued, &c.Token, &c.Version, &c.Deadline, &c.Created, &c.Activated, &c.Finished, &c.Reason, &c.Session, &r.waitTTL, &c.Identity, &c.EndedBy, &c.AllowDeadlock,
	}
}

func (r *claimRow) done() *claim.Claim {
	r.claim.TTL = time.Duration(r.ttl) * time.Microsecond
	r.claim.WaitTTL = time.Duration(r.waitTTL) * time.Microsecond
	return &r.claim
}

// marks returns "(?,?,…)" with n placeholders.
func marks(n int) string { return "(" + strings.TrimSuffix(strings.Repeat("?,", n), ",") + ")" }

func anys(values []string) []any {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return args
}

// each is the function of the same name, and restarts, with start, over a new connection when its first one is dead.
func (s *Store) each(ctx context.Context, p *pool, query string, args []any, start func(), row func(*sql.Rows) error) error {
	return s.withRetry(ctx, p, func(conn *sql.Conn) error {
		start()
		return each(ctx, conn, query, args, row)
	})
}

// scanRow reads a row, and again over a new connection when the first one is dead.
func (s *Store) scanRow(ctx context.Context, p *pool, query string, args []any, into ...any) error {
	return s.withRetry(ctx, p, func(conn *sql.Conn) error { return conn.QueryRowContext(ctx, query, args...).Scan(into...) })
}

func (s *Store) readClaims(ctx context.Context, query string, args ...any) ([]claim.Claim, error) {
	claims, err := readList(ctx, s, s.reader, query, args, scanClaim)
	return claims, readError(ctx, err)
}

// errEnough ends the reading of rows.
var errEnough = errors.New("the answer is large enough")

// readPage reads a list, with a budget of so many bytes unless that is 0. What the database would still send beyond the budget is
// not waited for: the connection is given up, unless it has to confirm what it has sent.
func (s *Store) readPage(ctx context.Context, bytes int, query string, args ...any) (claims []claim.Claim, err error) {
	err = s.withRetry(ctx, s.reader, func(conn *sql.Conn) error {
		reading, end := context.WithCancel(ctx)
		defer end()
		budget := db.Budget(bytes)
		claims = claims[:0]
		err := each(reading, conn, query, args, func(rows *sql.Rows) error {
			c, err := scanClaim(rows)
			if claims = append(claims, c); err != nil || budget.Take(&c) {
				return err
			}
			if !s.group.Load() {
				end()
			}
			return errEnough
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, listError(ctx, err)
	}
	return claims, nil
}

func (s *Store) readClaim(ctx context.Context, query string, args ...any) (claim.Claim, error) {
	claims, err := s.readClaims(ctx, query, args...)
	if err == nil && len(claims) == 0 {
		err = claim.ErrNotFound
	}
	if err != nil {
		return claim.Claim{}, err
	}
	return claims[0], nil
}

// readError returns the error of the context if it has one: it is the cause then.
func readError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return translate(ctx, err)
}

// listError is readError for reads that take longer the longer a list is. Other reads take long only if the database
// does.
func listError(ctx context.Context, err error) error {
	if overdue(err) {
		err = fmt.Errorf("%w: %w", db.ErrListTooLong, err)
	}
	return readError(ctx, err)
}

const (
	getSQL = "SELECT " + claimColumns + ", " + metaColumns + " FROM claims JOIN meta ON one = 1 WHERE id = ?"
	// holderSQL is one statement, so that it sees one state of a resource that is handed on.
	holderSQL = "SELECT " + claimColumns + ` FROM claims WHERE id = COALESCE(
		(SELECT NULLIF(holder, '') FROM resources WHERE name = ?),
		(SELECT id FROM claims FORCE INDEX (claims_line) WHERE ` + shares + ` ORDER BY position LIMIT 1))`
	// placeSQL is getSQL, and counts the claims ahead. A claim that does not wait is in no queue.
	placeSQL = "SELECT " + claimColumns + `, (SELECT COUNT(*) FROM (
			SELECT 1 FROM claims c STRAIGHT_JOIN claims w FORCE INDEX (claims_line)
			ON w.line = c.line AND w.sharing IS NULL AND w.position < c.position WHERE c.id = ? LIMIT ?) ahead), ` + metaColumns + `
		FROM claims JOIN meta ON one = 1 WHERE id = ?`
	heldSQL = "SELECT " + claimColumns + " FROM claims WHERE phase = ?"
	// The ids come from the index alone, so a page costs what all ids of the type cost, not all claims.
	heldPageSQL = "SELECT " + claimColumns + ` FROM (SELECT claims.* FROM (
		SELECT id FROM claims FORCE INDEX (claims_phase) WHERE phase = ? AND id > ? ORDER BY id LIMIT ?) page
		STRAIGHT_JOIN claims ON claims.id = page.id) claims ORDER BY id`
	countSQL = "SELECT COALESCE(SUM(phase = 1), 0), COALESCE(SUM(phase > 1), 0), COALESCE(SUM(phase = 0 AND at < 9223372036854775807), 0), (SELECT COUNT(*) FROM sessions) FROM claims" // without the row of the beats
	// Only waiting claims have a line. Positions alone would not tell when their claims were made: after a restore they
	// are ahead of the time.
	oldestWaitingSQL = `SELECT COALESCE(MIN(created), 0) FROM claims FORCE INDEX (claims_line) WHERE line IS NOT NULL AND position = (
		SELECT MIN(position) FROM claims FORCE INDEX (claims_line) WHERE line IS NOT NULL)`
	cutoffSQL = "SELECT at FROM claims WHERE phase = 0 AND at < 9223372036854775807 ORDER BY at DESC LIMIT 1 OFFSET ?"
)

// Get implements db.Getter.
func (s *Store) Get(ctx context.Context, id string, limit int) (c claim.Claim, ahead int, now claim.Instant, err error) {
	if limit == 0 {
		c, now, err = s.readOne(ctx, getSQL, []any{id})
	} else {
		c, now, err = s.readOne(ctx, placeSQL, []any{id, limit, id}, &ahead)
	}
	return c, ahead, now, err
}

// readOne reads the one row of a query for claimColumns, what more takes, and metaColumns. Without a row it returns
// claim.ErrNotFound.
func (s *Store) readOne(ctx context.Context, query string, args []any, more ...any) (claim.Claim, claim.Instant, error) {
	var r claimRow
	var m meta
	err := s.withRetry(ctx, s.reader, func(conn *sql.Conn) (err error) {
		r = claimRow{}
		m, err = scanMeta(conn.QueryRowContext(ctx, query, args...), append(r.columns(), more...)...)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return claim.Claim{}, claim.Instant{}, claim.ErrNotFound
	}
	return *r.done(), s.shown(m), readError(ctx, err)
}

// Holder implements db.Reader.
func (s *Store) Holder(ctx context.Context, resource string) (claim.Claim, error) {
	return s.readClaim(ctx, holderSQL, resource, resource)
}

// The phases of live claims: see the schema. Active claims of a type have phaseActive plus the type.
const (
	phaseWaiting = 1
	phaseActive  = 2
)

// Census implements db.Pruner.
func (s *Store) Census(ctx context.Context, keep int) (n db.Census, err error) {
	err = s.scanRow(ctx, s.scanner, countSQL, nil, &n.Waiting, &n.Active, &n.Finished, &n.Sessions)
	if err == nil {
		err = s.scanRow(ctx, s.scanner, oldestWaitingSQL, nil, &n.OldestWaiting)
	}
	if err == nil && 0 < keep && int64(keep) <= n.Finished {
		err = s.scanRow(ctx, s.scanner, cutoffSQL, []any{keep - 1}, &n.Cutoff)
	}
	if errors.Is(err, sql.ErrNoRows) { // some were deleted meanwhile
		err = nil
	}
	return n, readError(ctx, err)
}

// watchedColumns are claimColumns, limited to the data in the feed.
var watchedColumns = strings.Replace(briefColumns, "''", fmt.Sprintf("CASE WHEN LENGTH(value) <= %d THEN value ELSE '' END", db.MaxFeedValue), 1)

var (
	liveOfResourcePageSQL = "SELECT " + watchedColumns + " FROM (SELECT claims.* FROM " + liveOfResourceSQL +
		" WHERE claims.id > ? AND claims.status IN (1, 2)) claims ORDER BY id LIMIT ?"
	// fewLivePageSQL reads the ids of all live claims from an index. livePageSQL reads the table, which soon fills a
	// page if many claims are live.
	fewLivePageSQL = "SELECT " + watchedColumns + ` FROM (SELECT claims.* FROM (
		SELECT id FROM claims FORCE INDEX (claims_phase) WHERE phase >= 1 AND id > ? ORDER BY id LIMIT ?) page
		STRAIGHT_JOIN claims ON claims.id = page.id) claims ORDER BY id`
	livePageSQL = "SELECT " + watchedColumns + " FROM claims FORCE INDEX (PRIMARY) WHERE id > ? AND status IN (1, 2) ORDER BY id LIMIT ?"
	// countAllLiveSQL asks whether there are few of them.
	countAllLiveSQL = "SELECT COUNT(*) <= ? FROM (SELECT 1 FROM claims FORCE INDEX (claims_phase) WHERE phase >= 1 LIMIT ?) live"
)

// Live implements db.Reader.
func (s *Store) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	switch {
	case of.Session != "":
		return s.readClaims(ctx, sessionClaimsSQL, of.Session)
	case of.Held != nil && page.Limit == 0:
		return s.readPage(ctx, page.Bytes, heldSQL, phaseActive+int(*of.Held))
	case of.Held != nil:
		return s.readPage(ctx, page.Bytes, heldPageSQL, phaseActive+int(*of.Held), page.After, page.Limit)
	case of.Resource != nil:
		return s.readPage(ctx, page.Bytes, liveOfResourcePageSQL, *of.Resource, *of.Resource, *of.Resource, page.After, page.Limit)
	}
	var few bool
	if err := s.scanRow(ctx, s.reader, countAllLiveSQL, []any{fewLive, fewLive + 1}, &few); err != nil {
		return nil, listError(ctx, err)
	}
	if few {
		return s.readPage(ctx, page.Bytes, fewLivePageSQL, page.After, page.Limit)
	}
	return s.readPage(ctx, page.Bytes, livePageSQL, page.After, page.Limit)
}

// queueSQL is one statement, so that it sees one state of the queue in one round trip. Each
// row is a claim followed by the resource's row and the clock. The first has those two and no
// claim; in the others they are blank.
var queueSQL = `(SELECT ` + noClaim + `, COALESCE(r.version, 0), COALESCE(r.holder, ''), COALESCE(r.shared, 0), COALESCE(r.taken, 0), COALESCE(r.units, 0), COALESCE(r.waiting, 0), ` + metaColumns + `
		FROM meta LEFT JOIN resources r ON r.name = ? WHERE one = 1)
	UNION ALL (SELECT ` + queueColumns + `, ` + noQueue + ` FROM claims
		WHERE id = (SELECT NULLIF(holder, '') FROM resources WHERE name = ?))
	UNION ALL (SELECT ` + queueColumns + `, ` + noQueue + ` FROM claims FORCE INDEX (claims_line)
		WHERE ` + shares + ` ORDER BY position LIMIT ?)
	UNION ALL (SELECT ` + queueColumns + `, ` + noQueue + ` FROM claims FORCE INDEX (claims_line)
		WHERE ` + waits + ` ORDER BY position LIMIT ?)
	ORDER BY position`

// queueColumns are briefColumns with the beginning of the value.
var queueColumns = strings.Replace(briefColumns, "''", fmt.Sprintf("LEFT(value, %d)", db.MaxBeginning), 1)

const (
	noClaim = "'' AS id, '', '', 0, 0, 0, 0, NULL, '', 0, 0 AS position, 0, 0, 0, 0, 0, 0, '', '', 0, '', '', FALSE"
	noQueue = "0, '', 0, 0, 0, 0, 0, 0, 0, 0, 0"
)

// Queue implements db.Reader.
func (s *Store) Queue(ctx context.Context, resource string, limit int) (snapshot db.Snapshot, now claim.Instant, err error) {
	args := []any{resource, resource, resource, limit, resource, limit}
	err = s.each(ctx, s.reader, queueSQL, args, func() { snapshot = db.Snapshot{} }, func(rows *sql.Rows) error {
		var r claimRow
		row := claim.Row{Resource: resource}
		m, err := scanMeta(rows, append(append(r.columns(), &row.Version), rowInto(&row)...)...)
		c := r.done()
		c.Value = db.Beginning(c.Value)
		switch c.Status {
		case claim.Waiting:
			snapshot.Waiters = append(snapshot.Waiters, *c)
		case claim.Active:
			snapshot.Holders = append(snapshot.Holders, *c)
		default:
			snapshot.Row, now = row, s.shown(m)
		}
		return err
	})
	return snapshot, now, readError(ctx, err)
}

// usageSQL counts the live claims of an identity in an index. %s excludes some.
const usageSQL = "SELECT live_of LIKE 'a%%', COUNT(*) FROM claims FORCE INDEX (claims_live_of) WHERE live_of IN (?, ?)%s GROUP BY live_of"

// Usage implements db.Usages.
func (s *Store) Usage(ctx context.Context, identity string, except []string) (usage claim.Count, err error) {
	query, args := fmt.Sprintf(usageSQL, ""), []any{"a" + identity, "w" + identity}
	if len(except) > 0 {
		query, args = fmt.Sprintf(usageSQL, " AND id NOT IN "+marks(len(except))), append(args, anys(except)...)
	}
	err = s.each(ctx, s.reader, query, args, func() { usage = claim.Count{} }, func(rows *sql.Rows) error {
		var active bool
		var n int
		err := rows.Scan(&active, &n)
		if active {
			usage.Active = n
		} else {
			usage.Waiting = n
		}
		return err
	})
	return usage, readError(ctx, err)
}

const (
	// maxHolders is how many holders are cached, and maxHolderBytes how large the data of
	// a cached claim may be.
	maxHolders     = 100_000
	maxHolderBytes = 1 << 10
)

// holders caches the exclusive holders that this server has seen last, by resource. An entry
// is valid while the resource's row has the same version: every change to a queue moves it,
// and a transaction locks and reads the row in any case. Only the transactions of the store
// use it, one after the other.
type holders map[string]cached

type cached struct {
	version uint64 // of the resource
	holder  *claim.Claim
}

// get returns the holder of a row that was just read, or nil if it is not in the cache.
func (h holders) get(row claim.Row) *claim.Claim {
	known, ok := h[row.Resource]
	if !ok || known.version != row.Version || known.holder.ID != row.Holder {
		return nil
	}
	return known.holder
}

// remember adds the holders of queues that were saved and committed.
func (h holders) remember(queues []*claim.Queue) {
	if len(h)+len(queues) > maxHolders {
		clear(h)
	}
	for _, q := range queues {
		holder := q.ExclusiveHolder()
		if holder == nil || holder.Brief || len(holder.Value)+len(holder.UserData) > maxHolderBytes {
			delete(h, q.Resource)
			continue
		}
		h[q.Resource] = cached{q.Version, holder}
	}
}
