package watch

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// logBytes limits the size of the records in the log.
	logBytes = db.FeedBytes
	// decodedBytes limits the size of the newest records whose changes are kept decoded as well, which takes about six
	// times as much memory. Nearly all watchers read these.
	decodedBytes = 4 << 20
)

// feedLog is the part of the feed that the watchers of this server follow: one log for all of them, while there are
// any. It begins at the end of the feed when the first watcher comes, and is extended back for a watcher with an older
// cursor.
//
// Each of its positions is closed: with a commit it covers all commits that this one builds on. So the position of a
// watcher needs no order of its own: the watcher skips the commits of the log that its position covers.
type feedLog struct {
	feed db.Feed
	poke func() // makes the follower read the feed now

	extending chan struct{} // full while a goroutine extends the log back

	mu         sync.Mutex
	watchers   int
	on         bool
	generation int           // of the log: each new beginning is a new generation
	changed    chan struct{} // closed when the log grows, begins or ends
	read       chan struct{} // closed by the next read of the feed, whatever that finds, and with changed
	base, end  db.Position   // before the first commit of the log, and after the last; replaced, never changed
	at         claim.Time    // the database's time when the feed ended there
	oldest     claim.Time    // commits before this time are dropped
	readAt     time.Time     // when the read of the feed began that found this end
	first      int64         // the number of commits[0] in the log
	commits    []logCommit
	bytes      int
	grown      int64 // size of the records of all commits that were ever added at its end
	decoded    int   // size of the records whose changes are kept decoded
	undecoded  int64 // the number of the first of these commits
}

// logCommit is a commit with changes. changes is nil if they are not decoded.
type logCommit struct {
	server  string
	n       uint64
	at      claim.Time
	record  []byte
	changes []claim.Transition
}

func newFeedLog(feed db.Feed, poke func(), registerer prometheus.Registerer) *feedLog {
	l := &feedLog{feed: feed, poke: poke, extending: make(chan struct{}, 1), changed: make(chan struct{}), read: make(chan struct{})}
	gauge := func(name, help string, value func() int) {
		registerer.MustRegister(metric.GaugeFunc(name, help, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(value())
		}))
	}
	gauge("locket_watchers", "Watches on this server.", func() int { return l.watchers })
	gauge("locket_watch_log_bytes", "Size of the commits that this server keeps for its watches.", func() int { return l.bytes })
	return l
}

// join counts a watcher, and begins the log if there is none.
func (l *feedLog) join() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers++
	if !l.on {
		l.poke()
	}
}

func (l *feedLog) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers--; l.watchers == 0 {
		l.stop()
	}
}

// wanted reports whether there are watchers, and whether the log is on.
func (l *feedLog) wanted() (wanted, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watchers > 0, l.on
}

// ask requests a read of the feed now, and returns a channel that is closed after it.
func (l *feedLog) ask() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.poke()
	return l.read
}

// stop ends the log. A new one begins if there are watchers. l.mu is locked.
func (l *feedLog) stop() {
	l.on = false
	l.commits, l.bytes, l.decoded = nil, 0, 0
	l.signal()
}

// cut ends the log after a gap in the feed. Watchers resume in the next log, if they can.
func (l *feedLog) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on {
		l.stop()
		l.poke()
	}
}

// signal wakes all watchers. l.mu is locked.
func (l *feedLog) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
	l.hasRead()
}

// hasRead wakes the watchers that have asked for a read of the feed. l.mu is locked.
func (l *feedLog) hasRead() {
	close(l.read)
	l.read = make(chan struct{})
}

// begin begins the log at the end of the feed, with the database's time and the time of this server when it was read.
func (l *feedLog) begin(end db.Position, at, oldest claim.Time, read time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers == 0 {
		return
	}
	l.on = true
	l.generation++
	l.base, l.end, l.at, l.oldest, l.readAt = end, maps.Clone(end), at, oldest, read
	l.first, l.undecoded = 0, 0
	l.signal()
}

// grow adds the commits of a read of the feed, and where the feed ended.
func (l *feedLog) grow(commits []db.Commit, end db.Position, at, oldest claim.Time, read time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on {
		return
	}
	grew := false
	for _, c := range commits {
		if len(c.Changes) > 0 {
			grew = true
			l.commits = append(l.commits, logCommit{c.Server, c.N, c.At, c.Record, c.Changes})
			l.bytes += len(c.Record)
			l.grown += int64(len(c.Record))
			l.decoded += len(c.Record)
		}
	}
	if len(commits) > 0 {
		l.end = maps.Clone(end)
	}
	l.at, l.oldest, l.readAt = at, oldest, read
	l.trim()
	l.forget(end)
	if grew {
		l.signal()
	} else {
		l.hasRead()
	}
}

// trim drops decoded changes and old commits beyond the limits. l.mu is locked.
func (l *feedLog) trim() {
	for l.decoded > decodedBytes {
		c := &l.commits[l.undecoded-l.first]
		if c.changes != nil {
			c.changes = nil
			l.decoded -= len(c.record)
		}
		l.undecoded++
	}
	old := 0
	for ; old < len(l.commits) && (l.bytes > logBytes || l.commits[old].at < l.oldest); old++ {
		c := &l.commits[old]
		l.bytes -= len(c.record)
		if c.changes != nil {
			l.decoded -= len(c.record)
		}
	}
	if old == 0 {
		return
	}
	base := maps.Clone(l.base)
	for _, c := range l.commits[:old] {
		base[c.server] = max(base[c.server], c.n)
	}
	clear(l.commits[:old])
	l.commits, l.base = l.commits[old:], base
	l.first += int64(old)
	l.undecoded = max(l.undecoded, l.first)
}

// forget removes servers from the beginning of the log that are not in the position of its end: they have no more
// commits in the feed, so no valid cursor has them. A cursor without their commits is too old. l.mu is locked.
func (l *feedLog) forget(end db.Position) {
	gone := func(server string, _ uint64) bool {
		_, there := end[server]
		return !there
	}
	for server, n := range l.base {
		if gone(server, n) {
			l.base = maps.Clone(l.base)
			maps.DeleteFunc(l.base, gone)
			return
		}
	}
}

// covers reports whether the log has everything after a position: the position has every server at the beginning of
// the log, with all that it had committed before. l.mu is locked.
func (l *feedLog) covers(p db.Position) bool {
	for server, n := range l.base {
		if seen, known := p[server]; !known || seen < n {
			return false
		}
	}
	return true
}

// extend reads from the feed the commits between a cursor and the beginning of the log, and prepends them. It returns
// db.ErrFeedGap if they are no longer kept, or too many.
func (l *feedLog) extend(ctx context.Context, from db.Position) error {
	select {
	case l.extending <- struct{}{}:
		defer func() { <-l.extending }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	covered := !l.on || l.covers(from)
	l.mu.Unlock()
	if covered {
		return nil
	}
	commits, err := l.feed.Changes(ctx, from, true)
	if err != nil {
		return err
	}
	to := maps.Clone(from)
	for _, c := range commits {
		if err := to.Follow(c); err != nil {
			return err
		}
	}
	for done := false; !done; {
		if done, err = l.prepend(commits, from, to); err != nil {
			return err
		}
	}
	return nil
}

// prepend prepends the commits between two positions that come before the log. It returns false if the beginning of
// the log has moved meanwhile.
func (l *feedLog) prepend(commits []db.Commit, from, to db.Position) (done bool, err error) {
	l.mu.Lock()
	base := l.base
	l.mu.Unlock()
	var before []db.Commit
	bytes := 0
	for _, c := range commits {
		if c.N <= base[c.Server] && len(c.Changes) > 0 {
			before = append(before, c)
			bytes += len(c.Record)
		}
	}
	older := make([]logCommit, len(before))
	for i, c := range merge(before) {
		older[i] = logCommit{server: c.Server, n: c.N, at: c.At, record: c.Record}
	}
	earlier := make(db.Position, len(base))
	for server, n := range base {
		if to[server] < n {
			return false, db.ErrFeedGap
		}
		if seen, known := from[server]; known {
			earlier[server] = min(seen, n)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.on:
		return true, nil // it has ended
	case !maps.Equal(l.base, base):
		return false, nil
	case l.bytes+bytes > logBytes:
		return false, db.ErrFeedGap
	}
	l.base, l.commits = earlier, append(older, l.commits...)
	l.first -= int64(len(older))
	l.bytes += bytes
	return true, nil
}
