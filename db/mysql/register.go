package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

const registerSQL = "INSERT INTO servers (name, seen) VALUES (?, ?)"

// registeredName is the name that this server keeps sessions alive under, "" for none.
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
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	_, err = s.control.ExecContext(ctx, registerSQL, name, now.Lease)
	if err == nil {
		s.registeredAs.Store(&name)
	}
	return translate(ctx, err)
}

// DetachSilent implements db.Sessions.
func (s *Store) DetachSilent(ctx context.Context, silence time.Duration) (detached int, err error) {
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	silent := now.DueBefore().Add(-silence)
	gone, err := s.silentServers(ctx, silent)
	if err != nil {
		return 0, readError(ctx, err)
	}
	var failed []error
	for _, server := range gone {
		n, err := s.detach(ctx, server, silent)
		detached += n
		failed = append(failed, translate(ctx, err))
	}
	return detached, errors.Join(failed...)
}

// silentServer is a server that has not beaten since seen. One that was declared gone before has
// no row, and seen is 0.
type silentServer struct {
	name string
	seen claim.Time
}

func (s *Store) silentServers(ctx context.Context, before claim.Time) (gone []silentServer, err error) {
	return readList(ctx, s, s.control, silentSQL+" UNION ALL "+unknownServersSQL, []any{s.registeredName(), before}, func(row scanner) (server silentServer, err error) {
		err = row.Scan(&server.name, &server.seen)
		return server, err
	})
}

// detachAtOnce is how many sessions one transaction detaches.
const detachAtOnce = 256

// detach declares a server gone, unless it has beaten in the meantime, and detaches its sessions, in steps. First it
// sets the sessions' attach time to the server's last beat. That does not affect a live server, and then their
// deadlines no longer need the server's row. When the row is gone the server is gone for good. Sessions that remain
// after an error, or were attached in between, are found by the next look of any server.
//
// A session that somebody keeps locked is left out, and db.ErrRowLocked returned. When it is detached later, its
// server's row is gone and the last beat unknown: it was before silent, at the time of that later look.
func (s *Store) detach(ctx context.Context, server silentServer, silent claim.Time) (detached int, err error) {
	beaten := silent
	if server.seen != 0 {
		beaten = server.seen
		if _, err := s.inSteps(ctx, beatenSQL, beaten, server.name, beaten); err != nil {
			return 0, err
		}
		if n, err := s.change(ctx, "DELETE FROM servers WHERE name = ? AND seen = ?", server.name, server.seen); n == 0 || err != nil {
			return 0, err
		}
	}
	for begin := time.Now(); ; time.Sleep(followUpPause) { // what is locked may be free at once
		n, err := s.inSteps(ctx, detachSQL, beaten, server.name, claim.Forever)
		if detached += n; err != nil {
			return detached, err
		}
		left, err := s.readNames(ctx, s.control, attachedBeforeSQL, server.name, claim.Forever, 1)
		switch {
		case err != nil || len(left) == 0:
			return detached, err
		case time.Since(begin) > followUp:
			return detached, fmt.Errorf("%w: session %.200q of server %s, which is gone, cannot be detached", db.ErrRowLocked, left[0], server.name)
		}
	}
}

// inSteps changes the sessions of a server that were attached before a time. Where the database can skip locked rows,
// it leaves them out. It returns how many it has changed.
func (s *Store) inSteps(ctx context.Context, update string, to claim.Time, server string, before claim.Time) (changed int, err error) {
	which := attachedBeforeSQL
	if s.locks.sessions.stuck.canSkip {
		which += " FOR UPDATE" + skipLocked
	}
	for {
		ids, err := s.readNames(ctx, s.control, which, server, before, detachAtOnce)
		if err != nil || len(ids) == 0 {
			return changed, err
		}
		n, err := s.change(ctx, update+marks(len(ids)), append([]any{to, server, before}, anys(ids)...)...)
		if changed += n; len(ids) < detachAtOnce || err != nil {
			return changed, err
		}
	}
}

// change runs a statement in a transaction of its own, and returns how many rows it has changed.
func (s *Store) change(ctx context.Context, query string, args ...any) (changed int, err error) {
	err = s.withRetry(ctx, s.control, func(conn *sql.Conn) error {
		changed, err = affected(conn.ExecContext(ctx, query, args...))
		return err
	})
	return changed, err
}

func affected(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}
