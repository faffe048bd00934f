package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// errNotServing is returned by a member of a group that has not joined it, or left it.
var errNotServing = errors.New("this member of a replication group is not ONLINE in it")

const (
	onlineSQL = "EXISTS (SELECT 1 FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid AND member_state = 'ONLINE')"
	// viewSQL is the name of the group's membership as this member knows it. It changes when
	// any member joins or leaves.
	viewSQL = "(SELECT view_id FROM performance_schema.replication_group_member_stats WHERE member_id = @@server_uuid)"

	servesSQL   = "SELECT @@group_replication_group_name = '' OR " + onlineSQL
	noteViewSQL = "SET @locket_view = " + viewSQL
	confirmSQL  = "SELECT " + viewSQL + " = @locket_view AND " + onlineSQL
)

// serves checks that a server has joined its group. After a restart it may take writes before it rejoins, and the
// others never hear of them: two servers would grant the same lock. If the user may not look, the check passes.
func serves(ctx context.Context, conn driver.ExecerContext) error {
	if err := says(ctx, conn, servesSQL); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, noteViewSQL, nil)
	return unlessBlind(err)
}

// confirm makes sure that what was just read over a connection to a member of a group was the group's state. A member
// that leaves, expelled or by command, answers without asking the group from then on, what waits for the group's answer
// included. Before that its state changes from ONLINE; if it is ONLINE again by the time of this check, the view has
// changed. So no result counts until it is confirmed, afterwards and by the same member. A connection that fails is not
// used again.
func confirm(ctx context.Context, conn *sql.Conn) error {
	return conn.Raw(func(conn any) error {
		err := says(ctx, conn, confirmSQL)
		if errors.Is(err, errNotServing) {
			err = fmt.Errorf("%w: %w", err, driver.ErrBadConn)
		}
		return err
	})
}

// says returns errNotServing unless a query for one value returns true.
func says(ctx context.Context, conn any, query string) error {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return unlessBlind(err)
	}
	answer := make([]driver.Value, 1)
	err = errors.Join(rows.Next(answer), rows.Close())
	if err == nil && answer[0] != int64(1) {
		err = errNotServing
	}
	return err
}

// unlessBlind drops an error that means that this is not a member of a group, or that the user may not look.
func unlessBlind(err error) error {
	if isCode(err, codeUnknownVariable, codeNoSuchTable, codeTableDenied) {
		return nil
	}
	return err
}

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
	members, err = readList(ctx, s, s.control, membersSQL, nil, func(row scanner) (m db.Member, err error) {
		err = row.Scan(&m.Name, &m.Host, &m.Version, &m.Started, &m.Seen)
		return m, err
	})
	return members, now, readError(ctx, err)
}
