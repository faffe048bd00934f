package mysql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

const registerSQL = "INSERT INTO servers (name, seen) VALUES (?, ?)"

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
	gone, err := s.silentServers(ctx, now.DueBefore().Add(-silence))
	if err != nil {
		return 0, readError(ctx, err)
	}
	var failed []error
	for _, server := range gone {
		n, err := s.detach(ctx, server)
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
	add := func(rows *sql.Rows) error {
		var server silentServer
		err := rows.Scan(&server.name, &server.seen)
		gone = append(gone, server)
		return err
	}
	err = s.again(ctx, s.control, func(conn *sql.Conn) error {
		gone = nil
		if err := each(ctx, conn, silentSQL, []any{s.registeredName(), before}, add); err != nil {
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
