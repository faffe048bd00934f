package mysql

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/locket-service/locket/claim"
)

// feedAge is for how long a row of the feed is kept. A server that cannot read for longer
// makes all its waiting calls look for themselves.
const feedAge = time.Minute

// skipFeed begins the feed of each server at its end.
func (s *Store) skipFeed(ctx context.Context) error {
	return each(ctx, s.reader, "SELECT server, MAX(n) FROM feed GROUP BY server", nil, func(rows *sql.Rows) error {
		var server string
		var n uint64
		err := rows.Scan(&server, &n)
		s.cursors[server] = n
		return err
	})
}

// Changes implements db.Store. It is called by one goroutine.
func (s *Store) Changes(ctx context.Context) (ids []string, err error) {
	query, args := s.feedQuery()
	err = each(ctx, s.reader, query, args, func(rows *sql.Rows) error {
		var server, line string
		var n uint64
		err := rows.Scan(&server, &n, &line)
		s.cursors[server] = max(s.cursors[server], n)
		ids = append(ids, strings.Fields(line)...)
		return err
	})
	return ids, readError(ctx, err)
}

// feedQuery asks for what is new of the servers that are known, and for all of the others.
func (s *Store) feedQuery() (query string, args []any) {
	query = "SELECT server, n, ids FROM feed WHERE server NOT IN (?" + strings.Repeat(",?", len(s.cursors)) + ")"
	args = append(args, s.server)
	for server := range s.cursors {
		args = append(args, server)
	}
	for server, n := range s.cursors {
		query += " OR (server = ? AND n > ?)"
		args = append(args, server, n)
	}
	return query + " ORDER BY server, n", args
}

// feedSweep is when the feed was last swept, and how far it had got then.
type feedSweep struct {
	at      time.Time
	commits uint64
}

// sweepFeed deletes the rows of the feed that everybody has had time to read: this server's
// own by their numbers, and now and then what servers that died have left.
func (s *Store) sweepFeed(ctx context.Context, now claim.Time) error {
	if time.Since(s.sweep.at) < feedAge {
		return nil
	}
	old := s.sweep.commits
	s.sweep = feedSweep{at: time.Now(), commits: s.commits.Load()}
	if _, err := s.reader.ExecContext(ctx, "DELETE FROM feed WHERE server = ? AND n <= ?", s.server, old); err != nil {
		return err
	}
	_, err := s.reader.ExecContext(ctx, "DELETE FROM feed WHERE server <> ? AND at < ?", s.server, now.Add(-10*feedAge))
	return err
}
