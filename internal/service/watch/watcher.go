package watch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
)

var (
	// ErrCursorTooOld is returned for a cursor if the changes after it are no longer kept.
	ErrCursorTooOld = errors.New("the changes after the cursor are no longer kept")
	// ErrTooSlow is returned to a watcher whose next commit has been dropped from the log.
	ErrTooSlow = errors.New("the watcher does not keep up")
)

// Watcher returns the commits of all servers, in the order of the log. Only one goroutine may use it.
type Watcher struct {
	hub        *Hub
	log        *feedLog
	cursor     Cursor
	joined     time.Time // when it joined the log
	generation int       // of the log
	next       int64     // the number of the next commit in the log
	passed     int64     // how far the log had grown there: see feedLog.grown
	read       time.Time // when the read of the feed began whose commits have all been returned
}

// Watch returns a watcher that begins now, or after a cursor. The caller must close it. Watch waits for a read of the
// feed. It returns ErrCursorTooOld, ErrStopped, the errors of db.Store, or the cause of ctx.
func (h *Hub) Watch(ctx context.Context, after *Cursor) (*Watcher, error) {
	w := &Watcher{hub: h, log: h.log}
	w.log.join()
	var err error
	if after == nil {
		err = w.begin(ctx)
	} else {
		w.cursor = *after
		err = w.resume(ctx)
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close ends the watcher.
func (w *Watcher) Close() { w.log.leave() }

// Cursor returns the place after the commits that Next has returned.
func (w *Watcher) Cursor() Cursor { return w.cursor }

// locked waits until the log is on, and returns with its mutex locked.
func (w *Watcher) locked(ctx context.Context) error {
	l := w.log
	for {
		l.mu.Lock()
		if l.on {
			return nil
		}
		changed := l.changed
		l.mu.Unlock()
		if _, err := w.wait(ctx, changed, nil); err != nil {
			return err
		}
	}
}

// wait waits until the log changes, or for a value from timeout.
func (w *Watcher) wait(ctx context.Context, changed <-chan struct{}, timeout <-chan time.Time) (expired bool, err error) {
	select {
	case <-changed:
	case <-timeout:
		expired = true
	case <-w.hub.running.Done():
		err = ErrStopped
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return expired, err
}

// begin moves to the end of the log.
func (w *Watcher) begin(ctx context.Context) error {
	if err := w.locked(ctx); err != nil {
		return err
	}
	defer w.log.mu.Unlock()
	w.enter(w.log.first+int64(len(w.log.commits)), w.log.grown)
	w.cursor = Cursor{w.log.end, w.log.at}
	return nil
}

// enter moves to a place in the log. Its mutex is locked.
func (w *Watcher) enter(next, passed int64) {
	w.joined, w.generation, w.next, w.passed = time.Now(), w.log.generation, next, passed
}

// resume continues after the cursor, which may extend the log back.
func (w *Watcher) resume(ctx context.Context) error {
	for {
		if err := w.locked(ctx); err != nil {
			return err
		}
		old, covered := w.cursor.At < w.log.oldest, w.log.covers(w.cursor.Position)
		if covered && !old {
			w.enter(w.log.first, w.log.grown-int64(w.log.bytes))
		}
		w.log.mu.Unlock()
		if old {
			return ErrCursorTooOld
		}
		if covered {
			return nil
		}
		if err := w.log.extend(ctx, w.cursor.Position); errors.Is(err, db.ErrFeedGap) {
			return errors.Join(ErrCursorTooOld, err)
		} else if err != nil {
			return err
		}
	}
}

// maxNext limits the number of commits that Next takes from the log at once. It also stops after the commit that
// brings their records to maxNextBytes.
const (
	maxNext      = 256
	maxNextBytes = 128 << 10
)

// Next waits for the next commits that changed something, and returns them in order. After a value from timeout it
// returns none, but Cursor has moved. It returns ErrTooSlow, ErrCursorTooOld, ErrStopped, the errors of db.Store, or
// the cause of ctx.
func (w *Watcher) Next(ctx context.Context, timeout <-chan time.Time) ([]db.Commit, error) {
	for expired := false; ; {
		commits, changed, err := w.step(ctx)
		if len(commits) > 0 || err != nil || expired {
			return commits, err
		}
		if expired, err = w.wait(ctx, changed, timeout); err != nil {
			return nil, err
		}
	}
}

// NextBefore is Next, but returns none as soon as the watcher has returned every commit before t. It makes the
// follower read the feed until then.
func (w *Watcher) NextBefore(ctx context.Context, t time.Time) ([]db.Commit, error) {
	for !w.read.After(t) {
		commits, _, err := w.step(ctx)
		if len(commits) > 0 || err != nil || w.read.After(t) {
			return commits, err
		}
		if _, err := w.wait(ctx, w.log.ask(), nil); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// step returns the next commits, and if there are none what is closed when the log changes.
func (w *Watcher) step(ctx context.Context) (commits []db.Commit, changed <-chan struct{}, err error) {
	for {
		part, err := w.take()
		if err != nil {
			return nil, nil, err
		}
		if part.restarted {
			if err := w.resume(ctx); err != nil {
				return nil, nil, err
			}
			continue
		}
		commits, err := w.see(part)
		if len(commits) > 0 || err != nil || part.end {
			return commits, part.changed, err
		}
	}
}

// Late reports whether the watcher's next commit may soon be dropped: more than a quarter of the log, in bytes or in time,
// comes after its place.
func (w *Watcher) Late() bool {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return w.log.grown-w.passed > logBytes/4 || time.Since(w.read) > db.FeedAge/4
}

// logPart is a part of the log from the watcher's place on.
type logPart struct {
	commits   []logCommit
	restarted bool // the watcher has joined another log

	end     bool   // it reaches the end of the log; only then the following are set
	cursor  Cursor // of the end
	read    time.Time
	changed <-chan struct{}
}

// take takes the next part of the log.
func (w *Watcher) take() (p logPart, err error) {
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.on || l.generation != w.generation:
		p.restarted = true
		return p, nil
	case w.next < l.first:
		return p, ErrTooSlow
	}
	rest := l.commits[w.next-l.first:]
	n, bytes := 0, 0
	for ; n < min(maxNext, len(rest)) && bytes < maxNextBytes; n++ {
		bytes += len(rest[n].record)
	}
	p.commits = slices.Clone(rest[:n])
	w.next, w.passed = w.next+int64(n), w.passed+int64(bytes)
	if p.end = len(p.commits) == len(rest); p.end {
		p.cursor, p.read, p.changed = Cursor{l.end, l.at}, l.readAt, l.changed
	}
	return p, nil
}

// see returns the commits of a part that the watcher has not seen, and moves its cursor behind them.
func (w *Watcher) see(p logPart) (commits []db.Commit, err error) {
	for _, c := range p.commits {
		if c.n <= w.cursor.Position[c.server] {
			continue
		}
		if c.changes == nil {
			if _, c.changes, err = db.ReadRecord(c.record); err != nil {
				return nil, err
			}
		}
		commits = append(commits, db.Commit{Server: c.server, N: c.n, At: c.at, Changes: c.changes, Record: c.record})
	}
	if p.end && p.read.After(w.joined) {
		w.cursor, w.read = p.cursor.behind(w.cursor.Position), p.read
		return commits, nil
	}
	if len(p.commits) > 0 {
		w.cursor.Position = maps.Clone(w.cursor.Position)
		for _, c := range p.commits {
			w.cursor.Position[c.server] = max(w.cursor.Position[c.server], c.n)
		}
	}
	return commits, nil
}
