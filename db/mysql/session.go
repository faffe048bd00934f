package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	sessionColumns  = "id, owner, secret, ttl, server, attached, deadline, created, version, identity, ending_active, ending_waiting, ending_reason, ended_by"
	sessionSQL      = "SELECT " + sessionColumns + ", " + metaColumns + " FROM sessions JOIN meta ON one = 1 WHERE id = ?"
	lockSessionsSQL = "SELECT " + sessionColumns + " FROM sessions FORCE INDEX (PRIMARY) WHERE id IN %s ORDER BY id FOR UPDATE"

	// claimsOfSQL selects the live claims of sessions, waiting ones first, or only these; boundarySQL the session of
	// the first claim beyond the limit.
	claimsOfSQL = `SELECT s.session, claim, phase = 1 FROM session_claims s FORCE INDEX (session_claims_session) STRAIGHT_JOIN claims ON id = claim
		WHERE s.session IN %s AND phase >= 1 AND phase <= ? ORDER BY phase > 1, s.session LIMIT ?`
	boundarySQL = "SELECT session FROM session_claims FORCE INDEX (session_claims_session) WHERE session IN %s ORDER BY session LIMIT 1 OFFSET ?"

	sessionClaimsSQL = "SELECT " + briefColumns + ` FROM (SELECT claims.* FROM session_claims s FORCE INDEX (session_claims_session)
		STRAIGHT_JOIN claims ON id = claim WHERE s.session = ? AND phase > 0) claims ORDER BY position, id`
	countClaimsSQL = `SELECT s.session, COALESCE(SUM(phase > 1), 0), COALESCE(SUM(phase = 1), 0)
		FROM session_claims s FORCE INDEX (session_claims_session) STRAIGHT_JOIN claims ON id = claim WHERE s.session IN %s GROUP BY s.session`
	sessionsSQL    = "SELECT " + sessionColumns + " FROM sessions WHERE id > ? ORDER BY id LIMIT ?"
	attachedSQL    = "SELECT id FROM sessions FORCE INDEX (sessions_server) WHERE server = ?"
	dueSessionsSQL = "SELECT id FROM sessions FORCE INDEX (sessions_deadline) WHERE deadline > 0 AND deadline <= ? ORDER BY deadline LIMIT ?"

	silentSQL = "SELECT name, seen FROM servers WHERE name <> ? AND seen <= ?"
	// unknownServersSQL selects the servers that sessions are attached to, and that were declared gone. It
	// looks into the index once for each server.
	unknownServersSQL = `SELECT attached.server, 0 FROM (SELECT DISTINCT server FROM sessions FORCE INDEX (sessions_server) WHERE server > '') attached
		LEFT JOIN servers ON name = attached.server WHERE name IS NULL`

	// nextSessionSQL selects when a session falls due, when a server with sessions has been silent, 1 if sessions are
	// attached to a server that was declared gone, and the maximum if there is any session. Without sessions it selects
	// nothing: otherwise servers that once had some would keep each other busy.
	nextSessionSQL = `(SELECT deadline FROM sessions FORCE INDEX (sessions_deadline) WHERE deadline > 0 ORDER BY deadline LIMIT 1)
		UNION ALL (SELECT seen + ? FROM servers WHERE name <> ? AND EXISTS (SELECT 1 FROM sessions FORCE INDEX (sessions_server) WHERE server = name) ORDER BY seen LIMIT 1)
		UNION ALL (SELECT 1 FROM (` + unknownServersSQL + ` LIMIT 1) unknown)
		UNION ALL (SELECT 9223372036854775807 FROM sessions LIMIT 1)`

	insertSessions = "INSERT INTO sessions (" + sessionColumns + ") VALUES "
	onKnownSession = " ON DUPLICATE KEY UPDATE owner = VALUES(owner), secret = VALUES(secret), ttl = VALUES(ttl)," +
		" server = VALUES(server), attached = VALUES(attached), deadline = VALUES(deadline), version = VALUES(version)," +
		" ending_active = VALUES(ending_active), ending_waiting = VALUES(ending_waiting), ending_reason = VALUES(ending_reason), ended_by = VALUES(ended_by)"
	deleteSessions = "DELETE FROM sessions WHERE id IN "

	insertSessionClaims = "INSERT INTO session_claims (claim, session) VALUES "
	endSessionClaims    = "DELETE FROM session_claims WHERE claim IN "

	// attachedBeforeSQL selects sessions for the steps of beatenSQL and detachSQL: see detach.
	attachedBeforeSQL = "SELECT id FROM sessions FORCE INDEX (sessions_server) WHERE server = ? AND attached < ? ORDER BY id LIMIT ?"
	beatenSQL         = "UPDATE sessions SET attached = ? WHERE server = ? AND attached < ? AND id IN "
	detachSQL         = "UPDATE sessions SET server = '', deadline = GREATEST(attached, ?) + ttl, attached = 0, version = version + 1 WHERE server = ? AND attached < ? AND id IN "
)

// sessionRow takes a row of sessionColumns.
type sessionRow struct {
	session claim.Session
	ttl     int64
}

func (r *sessionRow) columns() []any {
	s := &r.session
	return []any{
		&s.ID, &s.Owner, &s.Secret, &r.ttl, &s.Server, &s.Attached, &s.Deadline, &s.Created, &s.Version, &s.Identity,
		&s.Ending.Active, &s.Ending.Waiting, &s.Ending.Reason, &s.Ending.By,
	}
}

func (r *sessionRow) done() claim.Session {
	r.session.TTL = time.Duration(r.ttl) * time.Microsecond
	return r.session
}

func scanSession(row scanner) (claim.Session, error) {
	var r sessionRow
	err := row.Scan(r.columns()...)
	return r.done(), err
}

// lockedSessions has the sessions that a transaction has locked.
type lockedSessions struct {
	found  []claim.Session
	claims map[string][]string // the ids of the claims of sessions that may end, as far as there is room
	part   map[string]bool     // the sessions that have more
	left   []string            // the ids of sessions that could not be locked
}

// lockSessions locks the wanted sessions, and finds the claims of the sessions that may end. A locked session gets no
// further claims.
func (t *tx) lockSessions(wanted db.Wanted) (s lockedSessions, err error) {
	if len(wanted.Sessions) == 0 {
		return s, nil
	}
	ids := slices.Compact(slices.Sorted(slices.Values(wanted.Sessions)))
	s.left, err = t.lock(&locking{lockTable: &t.store.locks.sessions, row: func(rows *sql.Rows) (string, error) {
		session, err := scanSession(rows)
		s.found = append(s.found, session)
		return session.ID, err
	}}, ids)
	if err != nil {
		return s, err
	}
	s.claims, s.part = make(map[string][]string), make(map[string]bool)
	room := claim.MaxEnds
	if err := t.claimsOf(&s, wanted.Ending, math.MaxInt8, &room); err != nil {
		return s, err
	}
	return s, t.claimsOf(&s, wanted.Withdrawing, phaseWaiting, &room)
}

// claimsOf finds the claims of sessions, up to a phase, as far as there is room. The ids are sorted. To look at many
// claims takes long: of sessions that have more together than one may have, the last ones are left for later.
func (t *tx) claimsOf(s *lockedSessions, ids []string, phase int, room *int) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(s.left, id) || s.claims[id] != nil })
	looked, err := t.fewClaims(ids)
	if err != nil {
		return err
	}
	for _, id := range ids[len(looked):] {
		s.part[id] = true
	}
	if len(looked) == 0 {
		return nil
	}
	left := *room
	args := append(anys(looked), phase, left+1)
	return each(t.ctx, t, fmt.Sprintf(claimsOfSQL, marks(len(looked))), args, func(rows *sql.Rows) error {
		var session, id string
		var waits bool
		err := rows.Scan(&session, &id, &waits)
		if left > 0 {
			left--
			*room = left
			s.claims[session] = append(s.claims[session], id)
			return err
		}
		for _, id := range looked { // the sessions before it are complete
			if waits || id >= session {
				s.part[id] = true
			}
		}
		return err
	})
}

// fewClaims returns as many of the first sessions as have at most one session's maximum of claims together, and at
// least one.
func (t *tx) fewClaims(ids []string) ([]string, error) {
	ids = ids[:min(len(ids), maxKeys)]
	if len(ids) < 2 {
		return ids, nil
	}
	var session string
	args := append(anys(ids), claim.MaxSessionClaims)
	err := t.QueryRowContext(t.ctx, fmt.Sprintf(boundarySQL, marks(len(ids))), args...).Scan(&session)
	if errors.Is(err, sql.ErrNoRows) {
		return ids, nil
	}
	n, _ := slices.BinarySearch(ids, session)
	return ids[:max(n, 1)], err
}

func (s *lockedSessions) addClaims(ids []string) []string {
	for _, session := range s.found {
		ids = slices.Concat(ids, s.claims[session.ID])
	}
	return ids
}

func (s *lockedSessions) put(qs *claim.Queues) {
	for _, session := range s.found {
		put := qs.PutSession
		if s.part[session.ID] {
			put = qs.PutPart
		}
		put(session, s.claims[session.ID]...)
	}
	for _, id := range s.left {
		qs.RefuseSession(db.ErrRowLocked, id)
	}
}

func (w *writer) sessions(changes []claim.SessionChange) {
	slices.SortFunc(changes, func(a, b claim.SessionChange) int { return strings.Compare(a.ID(), b.ID()) })
	for _, change := range changes {
		s := change.After
		if s == nil {
			w.same(deleteSessions, nil, nil, change.ID())
			continue
		}
		end := onKnownSession
		if change.Before == nil {
			end = ""
		}
		w.row(insertSessions, end, sessionValues(s)...)
	}
}

func sessionValues(s *claim.Session) []any {
	return []any{
		s.ID, s.Owner, s.Secret, s.TTL.Microseconds(), s.Server, int64(s.Attached), int64(s.Deadline), int64(s.Created), s.Version, s.Identity,
		uint8(s.Ending.Active), uint8(s.Ending.Waiting), s.Ending.Reason, s.Ending.By,
	}
}

// sessionClaim keeps the list of a session's live claims.
func (w *writer) sessionClaim(change claim.Transition) {
	c := change.After
	switch {
	case c.Session == "":
	case change.Before == nil && c.Status.Live():
		w.row(insertSessionClaims, "", c.ID, c.Session)
	case change.Before != nil && c.Status.Final():
		w.same(endSessionClaims, nil, nil, c.ID)
	}
}

// Session implements db.Sessions.
func (s *Store) Session(ctx context.Context, id string) (claim.Session, claim.Instant, error) {
	var r sessionRow
	var m meta
	err := s.withRetry(ctx, s.reader, func(conn *sql.Conn) (err error) {
		r = sessionRow{}
		m, err = scanMeta(conn.QueryRowContext(ctx, sessionSQL, id), r.columns()...)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return claim.Session{}, claim.Instant{}, claim.ErrSessionEnded
	}
	return r.done(), s.shown(m), readError(ctx, err)
}

// countedAtOnce is of how many sessions one statement counts the claims: they may have claim.MaxSessionClaims each, and the database ends a read after
// listTime.
const countedAtOnce = 20

func (s *Store) Sessions(ctx context.Context, after string, limit int) (page []db.SessionCount, now claim.Instant, err error) {
	sessions, err := readList(ctx, s, s.reader, sessionsSQL, []any{after, limit}, scanSession)
	if err != nil {
		return nil, now, readError(ctx, err)
	}
	at, ids := make(map[string]int), make([]string, len(sessions))
	for i, session := range sessions {
		at[session.ID], ids[i] = i, session.ID
		page = append(page, db.SessionCount{Session: session})
	}
	for chunk := range slices.Chunk(ids, countedAtOnce) {
		err := s.each(ctx, s.reader, fmt.Sprintf(countClaimsSQL, marks(len(chunk))), anys(chunk), func() {}, func(rows *sql.Rows) error {
			var id string
			var active, waiting int
			err := rows.Scan(&id, &active, &waiting)
			page[at[id]].Active, page[at[id]].Waiting = active, waiting
			return err
		})
		if err != nil {
			return nil, now, readError(ctx, err)
		}
	}
	now, err = s.Now(ctx)
	return page, now, err
}

func (s *Store) AttachedTo(ctx context.Context, server string) ([]string, error) {
	return s.readNames(ctx, s.control, attachedSQL, server)
}

// readNames returns the names, or ids, of a query.
func (s *Store) readNames(ctx context.Context, from *pool, query string, args ...any) (names []string, err error) {
	names, err = readList(ctx, s, from, query, args, scanName)
	return names, readError(ctx, err)
}

// nextSession returns the sooner of next, 0 for none, and the lease time when sessions must be looked at.
func (s *Store) nextSession(ctx context.Context, next claim.Time) (claim.Time, error) {
	first := next
	err := s.each(ctx, s.control, nextSessionSQL, []any{db.ServerTimeout.Microseconds(), s.registeredName()}, func() { next = first }, func(rows *sql.Rows) error {
		var at claim.Time
		err := rows.Scan(&at)
		next = db.Sooner(next, at)
		return err
	})
	return next, err
}
