package mysql

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

// feedAge is for how long a row of the feed is kept. A server whose read
// has failed makes all its waiting calls read their claims.
const feedAge = time.Minute

// goneAge is for how long the rows of a server that is gone are kept, with time to delete them.
const goneAge = 12 * feedAge

// skipFeed sets the cursor of each server to the end of its feed.
func (s *Store) skipFeed(ctx context.Context) error {
	return each(ctx, s.control, "SELECT server, MAX(n) FROM feed GROUP BY server", nil, func(rows *sql.Rows) error {
		var server string
		var n uint64
		err := rows.Scan(&server, &n)
		s.cursors[server] = cursor{n, time.Now()}
		return err
	})
}

// cursor is the last commit of a server that was read, and when that was.
type cursor struct {
	n  uint64
	at time.Time
}

// forgetServers drops the cursors of servers that have committed nothing for so long that the
// feed has no rows of theirs left: they may be gone. What is left of one that is not is read a
// second time, which does no harm.
func (s *Store) forgetServers() {
	for server, c := range s.cursors {
		if time.Since(c.at) > goneAge {
			delete(s.cursors, server)
		}
	}
}

// Changes implements db.Feed. It is called by one goroutine.
func (s *Store) Changes(ctx context.Context) (ids []string, err error) {
	s.forgetServers()
	query, args := s.feedQuery()
	err = s.each(ctx, s.control, query, args, func() { ids = nil }, func(rows *sql.Rows) error {
		var server, line string
		var n uint64
		err := rows.Scan(&server, &n, &line)
		if n > s.cursors[server].n {
			s.cursors[server] = cursor{n, time.Now()}
		}
		ids = append(ids, strings.Fields(line)...)
		return err
	})
	return ids, readError(ctx, err)
}

// feedQuery asks for the new rows of the servers that have a cursor, and all rows of others.
func (s *Store) feedQuery() (query string, args []any) {
	query = "SELECT server, n, ids FROM feed WHERE server NOT IN (?" + strings.Repeat(",?", len(s.cursors)) + ")"
	args = append(args, s.server)
	for server := range s.cursors {
		args = append(args, server)
	}
	for server, c := range s.cursors {
		query += " OR (server = ? AND n > ?)"
		args = append(args, server, c.n)
	}
	return query + " ORDER BY server, n", args
}

// feedSweep is when the feed was last swept, and the last commit of this server then.
type feedSweep struct {
	at      time.Time
	commits uint64
}

// sweepFeed deletes the rows of the feed that every server has had time to read: this server's
// own by their numbers, and those of servers that are gone by their age.
func (s *Store) sweepFeed(ctx context.Context) error {
	if time.Since(s.sweep.at) < feedAge {
		return nil
	}
	old := s.sweep.commits
	s.sweep = feedSweep{at: time.Now(), commits: s.commits.Load()}
	if _, err := s.control.ExecContext(ctx, "DELETE FROM feed WHERE server = ? AND n <= ?", s.server, old); err != nil {
		return err
	}
	_, err := s.control.ExecContext(ctx, "DELETE FROM feed WHERE server <> ? AND at < "+nowSQL+" - ?", s.server, (10 * feedAge).Microseconds())
	return err
}
