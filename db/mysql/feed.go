package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// feedRowBytes is about what a row of the feed takes without its changes.
const feedRowBytes = 64

// feedName is the name of this server in the feed, and how far it has got there. The goroutine
// that transacts moves it; others read it.
type feedName struct {
	mu    sync.Mutex
	name  string
	last  uint64 // the last commit; the next one has the next number
	at    time.Time
	bytes int    // of all rows so far
	old   uint64 // the last commit that need not be kept
	marks []feedMark
	moved chan struct{} // closed when the last commit, or the name, becomes another one
}

// feedMark is how far the feed of this server had got at a moment.
type feedMark struct {
	n     uint64
	at    time.Time
	bytes int
}

func (f *feedName) get() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.name
}

// next returns the name, and the number of the next commit.
func (f *feedName) next() (name string, n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.name, f.last + 1
}

// committed says that the next commit is done, with so many rows of so many bytes together.
func (f *feedName) committed(rows uint64, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last += rows
	f.bytes += bytes
	f.at = time.Now()
	f.move()
	if last := len(f.marks) - 1; last < 0 || f.bytes-f.marks[last].bytes > db.FeedBytes/64 || f.at.Sub(f.marks[last].at) > db.FeedAge/60 {
		f.marks = append(f.marks, feedMark{f.last, f.at, f.bytes})
	}
}

// change switches to a new name: it is not known whether the next commit has been done, or may be done later on.
func (f *feedName) change() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.name, f.last, f.bytes, f.old, f.marks = uuid.NewString()[:23], 0, 0, 0, nil
	f.move()
}

func (f *feedName) move() {
	if f.moved != nil {
		close(f.moved)
	}
	f.moved = make(chan struct{})
}

// acknowledged reports whether a commit that is in the feed is this server's, and was acknowledged. If it is this server's and was not,
// moved is closed when more is known.
func (f *feedName) acknowledged(server string, n uint64) (is bool, moved <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case server != f.name:
		return false, nil
	case n <= f.last:
		return true, nil
	default:
		return false, f.moved
	}
}

// sweep returns this server's name in the feed and the last row to delete. The newest row always stays, since it
// carries the name. touch is its number if it must be refreshed so that other servers do not take this one for dead,
// otherwise 0.
func (f *feedName) sweep() (name string, old, touch uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.marks) > 0 && (time.Since(f.marks[0].at) > db.FeedAge || f.bytes-f.marks[0].bytes > db.FeedBytes) {
		f.old = f.marks[0].n
		f.marks = f.marks[1:]
	}
	if time.Since(f.at) > db.FeedAge/2 {
		f.at, touch = time.Now(), f.last
	}
	return f.name, min(f.old, max(f.last, 1)-1), touch
}

// feedEnd is the last commit of a server in the feed.
type feedEnd struct {
	server string
	n      uint64
	at     claim.Time
}

const feedEndSQL = "SELECT " + nowSQL + `, COALESCE(ends.server, ''), COALESCE(ends.n, 0), COALESCE(ends.at, 0)
	FROM meta LEFT JOIN (
		SELECT feed.server, feed.n, feed.at FROM (SELECT server, MAX(n) AS n FROM feed GROUP BY server) newest
		STRAIGHT_JOIN feed ON feed.server = newest.server AND feed.n = newest.n) ends ON 1 = 1
	WHERE one = 1`

func (s *Store) feedEnds(ctx context.Context) (ends []feedEnd, now claim.Time, err error) {
	err = s.each(ctx, s.control, feedEndSQL, nil, func() { ends = nil }, func(rows *sql.Rows) error {
		var e feedEnd
		err := rows.Scan(&now, &e.server, &e.n, &e.at)
		if e.server != "" {
			ends = append(ends, e)
		}
		return err
	})
	return ends, now, err
}

// End implements db.Feed.
func (s *Store) End(ctx context.Context, own bool) (db.Position, claim.Time, error) {
	ends, now, err := s.feedEnds(ctx)
	position := make(db.Position, len(ends))
	for _, e := range ends {
		if own || e.server != s.name.get() {
			position[e.server] = e.n
		}
	}
	if err == nil {
		err = s.makeDurable(ctx, position)
	}
	return position, now, readError(ctx, err)
}

func (s *Store) Changes(ctx context.Context, after db.Position, own bool) (commits []db.Commit, err error) {
	name, skip := s.name.get(), ""
	if !own {
		skip = name
	}
	query, args := feedQuery(after, skip)
	err = s.withRetry(ctx, s.control, func(conn *sql.Conn) error {
		reading, end := context.WithCancel(ctx)
		defer end()
		commits = nil
		bytes := 0
		return each(reading, conn, query, args, func(rows *sql.Rows) error {
			var c db.Commit
			if err := rows.Scan(&c.Server, &c.N, &c.At, &c.Record); err != nil {
				return err
			}
			if bytes += feedRowBytes + len(c.Record); bytes > db.FeedBytes {
				end()
				return db.ErrFeedGap
			}
			if err := decode(&c); err != nil {
				return err
			}
			if c.Server != name {
				c.Others = c.Changes
			}
			commits = append(commits, c)
			return nil
		})
	})
	if err == nil {
		err = s.makeDurable(ctx, endsOf(commits))
	}
	if err != nil {
		return nil, readError(ctx, err)
	}
	return commits, nil
}

// endsOf returns the last commit of each server.
func endsOf(commits []db.Commit) db.Position {
	ends := make(db.Position)
	for _, c := range commits {
		ends[c.Server] = max(ends[c.Server], c.N)
	}
	return ends
}

// decode reads the record of a commit. The record is empty if the transaction was not done after all.
func decode(c *db.Commit) error {
	if len(c.Record) == 0 {
		return nil
	}
	at, changes, err := db.ReadRecord(c.Record)
	if err != nil {
		return fmt.Errorf("%w: commit %d of %s: %w", db.ErrFeedGap, c.N, c.Server, err)
	}
	c.At, c.Changes = at, changes
	return nil
}

// feedQuery selects the rows after a position, except one server's.
func feedQuery(after db.Position, skip string) (query string, args []any) {
	args = append(args, skip)
	for server := range after {
		args = append(args, server)
	}
	conditions := "server NOT IN " + marks(len(args))
	others := 0
	for server, n := range after {
		if server != skip {
			others++
			args = append(args, server, n)
		}
	}
	return "SELECT server, n, at, changes FROM feed WHERE " + conditions + strings.Repeat(" OR (server = ? AND n > ?)", others) + " ORDER BY server, n", args
}

const (
	// sweepFeedInterval is how often the feed is swept, sweepFeedTime for how long at once for each server, and
	// feedStep how many rows one statement deletes.
	sweepFeedInterval = 5 * time.Second
	sweepFeedTime     = time.Second
	feedStep          = 200
)

// sweepFeed deletes old rows of the feed: this server's, and dead servers'. A live server touches its last row, so that
// it stays.
func (s *Store) sweepFeed(ctx context.Context) error {
	if time.Since(s.feedSwept) < sweepFeedInterval {
		return nil
	}
	s.feedSwept = time.Now()
	return s.sweepFeedFor(ctx, sweepFeedTime)
}

// sweepFeedFor deletes the rows of each server for so long at most.
func (s *Store) sweepFeedFor(ctx context.Context, limit time.Duration) error {
	name, old, touch := s.name.sweep()
	if touch > 0 {
		if _, err := s.control.ExecContext(ctx, "UPDATE feed SET at = "+nowSQL+" WHERE server = ? AND n = ?", name, touch); err != nil {
			return err
		}
	}
	if err := s.deleteFeed(ctx, name, old, limit); err != nil {
		return err
	}
	ends, now, err := s.feedEnds(ctx)
	if err != nil {
		return err
	}
	s.feedPast.Saw(now)
	gone := min(now.Add(-2*db.FeedAge), s.feedPast.Before())
	for _, e := range ends {
		if e.server != name && e.at < gone {
			if err := s.deleteFeed(ctx, e.server, e.n, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteFeed deletes rows of a server up to one, as many as there is time for.
func (s *Store) deleteFeed(ctx context.Context, server string, last uint64, limit time.Duration) error {
	for begin := time.Now(); time.Since(begin) < limit; {
		result, err := s.control.ExecContext(ctx, "DELETE FROM feed WHERE server = ? AND n <= ? ORDER BY n LIMIT ?", server, last, feedStep)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n < feedStep {
			return err
		}
	}
	return nil
}

func (s *Store) Arrived() <-chan struct{} { return nil }
