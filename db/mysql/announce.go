package mysql

import (
	"context"
	"database/sql"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	announceSQL = "INSERT INTO members (name, host, version, started, seen) VALUES (?, ?, ?, ?, " + nowSQL + ") ON DUPLICATE KEY UPDATE seen = VALUES(seen)"
	// forgetMembersSQL has few rows to look at: one for each server.
	forgetMembersSQL = "DELETE FROM members WHERE seen < " + nowSQL + " - ?"
	withdrawSQL      = "DELETE FROM members WHERE name = ?"
	membersSQL       = "SELECT name, host, version, started, seen FROM members ORDER BY name"
)

// Announce implements db.Members.
func (s *Store) Announce(ctx context.Context, m db.Member, leaves bool) error {
	statement, args := announceSQL, []any{m.Name, m.Host, m.Version, m.Started}
	if leaves {
		statement, args = withdrawSQL, []any{m.Name}
	}
	err := s.alone(ctx, statement, args...)
	if err == nil {
		err = s.alone(ctx, forgetMembersSQL, db.MemberAge.Microseconds())
	}
	return err
}

// alone carries out one statement beside the transactions.
func (s *Store) alone(ctx context.Context, statement string, args ...any) error {
	return translate(ctx, s.withRetry(ctx, s.control, func(conn *sql.Conn) error { return exec(ctx, conn, statement, args...) }))
}

func (s *Store) Members(ctx context.Context) (members []db.Member, now claim.Instant, err error) {
	if now, err = s.Now(ctx); err != nil {
		return nil, now, err
	}
	err = s.each(ctx, s.control, membersSQL, nil, func() { members = nil }, func(rows *sql.Rows) error {
		var m db.Member
		err := rows.Scan(&m.Name, &m.Host, &m.Version, &m.Started, &m.Seen)
		members = append(members, m)
		return err
	})
	return members, now, readError(ctx, err)
}
