package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

const (
	vouchSQL = "INSERT INTO servers (name, seen) VALUES (?, ?)"
	// readVouchSQL reads the clock, and whether the server is still there.
	readVouchSQL = "SELECT (SELECT COUNT(*) FROM servers WHERE name = ?), " + metaColumns + " FROM meta WHERE one = 1"

	moveClockSQL = "UPDATE meta SET seen = ?, outage = ? WHERE one = 1 AND seen = ? AND outage = ?"
	// beatSQL changes both rows or none. The count is for the number of rows that it returns: what
	// is set to what it was does not count as changed.
	beatSQL = `UPDATE meta JOIN servers ON name = ? SET meta.seen = ?, outage = ?, servers.seen = ?, beats = beats + 1
		WHERE one = 1 AND meta.seen = ? AND outage = ?`
)

// vouching is the name under which this server vouches for sessions, "" for none.
func (s *Store) vouching() string {
	if name := s.vouchingFor.Load(); name != nil {
		return *name
	}
	return ""
}

// Vouch implements db.Pulse.
func (s *Store) Vouch(ctx context.Context, name string) error {
	s.vouchingFor.Store(nil)
	if name == "" {
		return nil
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	_, err = s.control.ExecContext(ctx, vouchSQL, name, now.Lease)
	if err == nil {
		s.vouchingFor.Store(&name)
	}
	return translate(ctx, err)
}

// readVouch reads the clock, and whether this server has a row to vouch with.
func (s *Store) readVouch(ctx context.Context, conn *sql.Conn) (m meta, there bool, err error) {
	sent := time.Now()
	m, err = scanMeta(conn.QueryRowContext(ctx, readVouchSQL, s.vouching()), &there)
	if err == nil {
		s.correct(&m, sent)
	}
	return m, there, err
}

// moveClock changes the clock if it is as it was read, and with it this server's row if that is
// there. It returns how many rows have changed: 0 if others have changed them meanwhile.
func (s *Store) moveClock(ctx context.Context, conn *sql.Conn, m meta, clock db.Clock, there bool) (int64, error) {
	query, args := moveClockSQL, []any{clock.Seen, clock.Outage.Microseconds()}
	if there {
		query, args = beatSQL, []any{s.vouching(), clock.Seen, clock.Outage.Microseconds(), clock.Instant(m.at).Lease}
	}
	result, err := conn.ExecContext(ctx, query, append(args, m.clock.Seen, m.clock.Outage.Microseconds())...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// DetachSilent implements db.Sessions.
func (s *Store) DetachSilent(ctx context.Context, silence time.Duration) (detached int, err error) {
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	gone, err := s.silentServers(ctx, now.DueBefore().Add(-silence))
	if err != nil {
		return 0, readError(ctx, err)
	}
	for _, server := range gone {
		n, err := s.detach(ctx, server)
		if err != nil {
			return detached, translate(ctx, err)
		}
		detached += n
	}
	return detached, nil
}

// silentServer is a server that has not beaten since seen. One that was declared gone before has
// no row, and seen is 0.
type silentServer struct {
	name string
	seen claim.Time
}

func (s *Store) silentServers(ctx context.Context, before claim.Time) (gone []silentServer, err error) {
	add := func(rows *sql.Rows) error {
		var server silentServer
		err := rows.Scan(&server.name, &server.seen)
		gone = append(gone, server)
		return err
	}
	err = s.again(ctx, s.control, func(conn *sql.Conn) error {
		gone = nil
		if err := each(ctx, conn, silentSQL, []any{s.vouching(), before}, add); err != nil {
			return err
		}
		return each(ctx, conn, unknownServersSQL, nil, add)
	})
	return gone, err
}

// detach deletes a server's row, unless it has beaten meanwhile, and then detaches its sessions. A
// session that it attaches after that is found by the next look: the server is never there again.
func (s *Store) detach(ctx context.Context, server silentServer) (detached int, err error) {
	err = retry(ctx, func() error {
		return s.again(ctx, s.control, func(conn *sql.Conn) error {
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if detached, err = detachIn(ctx, tx, server); err != nil {
				return err
			}
			return tx.Commit()
		})
	})
	return detached, err
}

func detachIn(ctx context.Context, tx *sql.Tx, server silentServer) (detached int, err error) {
	if server.seen != 0 {
		n, err := affected(tx.ExecContext(ctx, "DELETE FROM servers WHERE name = ? AND seen = ?", server.name, server.seen))
		if n == 0 || err != nil {
			return 0, err
		}
	}
	return affected(tx.ExecContext(ctx, detachSQL, server.seen, server.name))
}

func affected(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}
