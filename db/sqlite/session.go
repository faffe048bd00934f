package sqlite

import (
	"context"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

const (
	sessionColumns = "id, owner, secret, ttl, server, attached, deadline, created, version, identity, ending_active, ending_waiting, ending_reason, ended_by"
	sessionSQL     = "SELECT " + sessionColumns + " FROM sessions WHERE id = ?"

	// ofSession makes a query use claims_session.
	ofSession        = "session <> '' AND status < 3"
	sessionClaimsSQL = "SELECT " + briefColumns + " FROM claims WHERE session = ? AND " + ofSession + " ORDER BY position, id"
	// endsSQL selects the claims of a session, each with how many bytes SQLite writes anew when it ends.
	endsSQL         = "SELECT id, octet_length(value) + coalesce(octet_length(user_data), 0) FROM claims INDEXED BY claims_session WHERE session = ? AND " + ofSession
	countSessionSQL = "(SELECT count(*) FROM claims WHERE session = s.id AND session <> '' AND status < 3 AND status = "
	sessionsSQL     = "SELECT " + sessionColumns + ", " + countSessionSQL + "2), " + countSessionSQL + "1) FROM sessions s WHERE id > ? ORDER BY id" + limitSQL

	sessionIDsSQL  = "SELECT id FROM sessions WHERE id > ? ORDER BY id" + limitSQL
	attachedSQL    = "SELECT id FROM sessions WHERE server = ?"
	dueSessionsSQL = "SELECT id FROM sessions WHERE deadline > 0 AND deadline <= ? ORDER BY deadline" + limitSQL

	silentSQL = "SELECT name, seen FROM servers WHERE name <> ? AND seen <= ?"
	// unknownServersSQL selects the servers that sessions are attached to, and that were declared gone. It
	// looks into the index once for each server.
	unknownServersSQL = `WITH RECURSIVE attached (name) AS (
			SELECT min(server) FROM sessions WHERE server > ''
			UNION ALL SELECT (SELECT min(server) FROM sessions WHERE server > name) FROM attached WHERE name IS NOT NULL)
		SELECT name, 0 FROM attached WHERE name IS NOT NULL AND name NOT IN (SELECT name FROM servers)`

	// nextSessionSQL selects when a session falls due, when a server has been silent, and what stands
	// for sessions that are attached to a server that was declared gone, and for any session at all.
	nextSessionSQL = `SELECT * FROM (SELECT deadline FROM sessions WHERE deadline > 0 ORDER BY deadline LIMIT 1)
		UNION ALL SELECT * FROM (SELECT seen + ?2 FROM servers WHERE name <> ?1 ORDER BY seen LIMIT 1)
		UNION ALL SELECT 1 WHERE EXISTS (` + unknownServersSQL + `)
		UNION ALL SELECT 9223372036854775807 WHERE EXISTS (SELECT 1 FROM sessions)`
)

// scanSession reads a session from a row of sessionColumns.
func scanSession(row *sqlite.Stmt) claim.Session {
	s := claim.Session{
		ID:       row.ColumnText(0),
		Owner:    row.ColumnText(1),
		Secret:   make([]byte, row.ColumnLen(2)),
		TTL:      time.Duration(row.ColumnInt64(3)) * time.Microsecond,
		Server:   row.ColumnText(4),
		Attached: claim.Time(row.ColumnInt64(5)),
		Deadline: claim.Time(row.ColumnInt64(6)),
		Created:  claim.Time(row.ColumnInt64(7)),
		Version:  uint64(row.ColumnInt64(8)),
		Identity: row.ColumnText(9),
		Ending: claim.Ending{
			Active: claim.Status(row.ColumnInt64(10)), Waiting: claim.Status(row.ColumnInt64(11)),
			Reason: row.ColumnText(12), By: row.ColumnText(13),
		},
	}
	row.ColumnBytes(2, s.Secret)
	return s
}

// loadSession loads a session if there is one, and its claims, or those that wait, as far as there is room.
func (t *tx) loadSession(qs *claim.Queues, id string, wanted db.Wanted) error {
	var s *claim.Session
	err := query(t.w.session, func() {
		found := scanSession(t.w.session)
		s = &found
	}, id)
	if err != nil || s == nil {
		return err
	}
	of := t.w.sessionClaims
	if _, ending := slices.BinarySearch(wanted.Ending, id); !ending {
		if _, withdrawing := slices.BinarySearch(wanted.Withdrawing, id); !withdrawing {
			qs.PutSession(*s)
			return nil
		}
		of = t.w.sessionWaits
	}
	var claims []string
	put := qs.PutSession
	err = queryUntil(of, func() bool {
		if t.ends == 0 || t.endBytes <= 0 {
			put = qs.PutPart
			return false
		}
		claims = append(claims, of.ColumnText(0))
		t.ends--
		t.endBytes -= of.ColumnInt(1)
		return true
	}, id, t.ends+1)
	if err != nil {
		return err
	}
	for _, id := range claims {
		if err := t.loadClaim(qs, id, wanted); err != nil {
			return err
		}
	}
	put(*s, claims...)
	return nil
}

func (t *tx) saveSession(change claim.SessionChange) error {
	after := change.After
	if after == nil {
		return run(t.w.deleteSession, change.Before.ID)
	}
	stmt := t.w.updateSession
	if change.Before == nil {
		stmt = t.w.insertSession
	}
	return run(stmt, after.Owner, after.Secret, after.TTL.Microseconds(), after.Server, int64(after.Attached),
		int64(after.Deadline), int64(after.Created), int64(after.Version), after.Identity,
		uint8(after.Ending.Active), uint8(after.Ending.Waiting), after.Ending.Reason, after.Ending.By, after.ID)
}

// Session implements db.Sessions.
func (s *Store) Session(ctx context.Context, id string) (found claim.Session, now claim.Instant, err error) {
	err = s.read(ctx, sessionSQL, func(row *sqlite.Stmt) { found = scanSession(row) }, id)
	if err == nil && found.ID == "" {
		err = claim.ErrSessionEnded
	}
	return found, s.instant(), err
}

// Sessions implements db.Sessions.
func (s *Store) Sessions(ctx context.Context, after string, limit int) (page []db.SessionCount, now claim.Instant, err error) {
	err = s.read(ctx, sessionsSQL, func(row *sqlite.Stmt) {
		page = append(page, db.SessionCount{Session: scanSession(row), Active: row.ColumnInt(14), Waiting: row.ColumnInt(15)})
	}, after, limit)
	return page, s.instant(), err
}

// SessionIDs implements db.Sessions.
func (s *Store) SessionIDs(ctx context.Context, after string, limit int) (ids []string, err error) {
	err = s.read(ctx, sessionIDsSQL, func(row *sqlite.Stmt) { ids = append(ids, row.ColumnText(0)) }, after, limit)
	return ids, err
}

// SessionClaims implements db.Sessions.
func (s *Store) SessionClaims(ctx context.Context, id string) ([]claim.Claim, error) {
	return s.readClaims(ctx, sessionClaimsSQL, id)
}

// AttachedTo implements db.Sessions.
func (s *Store) AttachedTo(ctx context.Context, server string) (ids []string, err error) {
	err = s.read(ctx, attachedSQL, func(row *sqlite.Stmt) { ids = append(ids, row.ColumnText(0)) }, server)
	return ids, err
}

// DueSessions implements db.Sessions.
func (s *Store) DueSessions(ctx context.Context, limit int) (ids []string, err error) {
	err = s.read(ctx, dueSessionsSQL, func(row *sqlite.Stmt) { ids = append(ids, row.ColumnText(0)) },
		int64(s.instant().DueBefore()), limit)
	return ids, err
}

// nextSession returns the sooner one of next, 0 for none, and the lease time at which sessions are
// to be looked at.
func (s *Store) nextSession(ctx context.Context, next claim.Time) (claim.Time, error) {
	err := s.read(ctx, nextSessionSQL, func(row *sqlite.Stmt) {
		next = db.Sooner(next, claim.Time(row.ColumnInt64(0)))
	}, s.registeredName(), db.ServerTimeout.Microseconds())
	return next, err
}

// registeredName is the name under which this server keeps sessions alive, "" for none.
func (s *Store) registeredName() string {
	if name := s.registeredAs.Load(); name != nil {
		return *name
	}
	return ""
}

// Register implements db.Pulse.
func (s *Store) Register(ctx context.Context, name string) error {
	s.registeredAs.Store(nil)
	if name == "" {
		return nil
	}
	return s.write(ctx, func() error { return run(s.writer.register, name, int64(s.instant().Lease)) },
		func() { s.registeredAs.Store(&name) })
}

// DetachSilent implements db.Sessions. There are no other servers: those that are silent are this
// one, before it was started anew.
func (s *Store) DetachSilent(ctx context.Context, silence time.Duration) (detached int, err error) {
	type server struct {
		name string
		seen int64
	}
	var gone []server
	add := func(row *sqlite.Stmt) { gone = append(gone, server{row.ColumnText(0), row.ColumnInt64(1)}) }
	if err := s.read(ctx, silentSQL, add, s.registeredName(), int64(s.instant().DueBefore().Add(-silence))); err != nil {
		return 0, err
	}
	if err := s.read(ctx, unknownServersSQL, add); err != nil || len(gone) == 0 {
		return 0, err
	}
	err = s.write(ctx, func() error {
		for _, server := range gone {
			if err := run(s.writer.deleteServer, server.name); err != nil {
				return err
			}
			if err := run(s.writer.detach, server.seen, server.name); err != nil {
				return err
			}
			detached += s.conn.Changes()
		}
		return nil
	}, nil)
	return detached, err
}
