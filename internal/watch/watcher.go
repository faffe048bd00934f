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
	// ErrCursorTooOld is returned for a cursor after which changes are no longer kept, or were made
	// by a server that does not tell them.
	ErrCursorTooOld = errors.New("the changes after the cursor are no longer kept")
	// ErrTooSlow is returned when a watcher is so far behind that what comes next is not kept
	// for it.
	ErrTooSlow = errors.New("the watcher does not keep up")
)

// Watcher returns what the servers commit, in the order of the log. It is used by one goroutine.
type Watcher struct {
	hub        *Hub
	log        *feedLog
	cursor     Cursor
	joined     time.Time // when it joined the log
	generation int       // of the log
	next       int64     // the number of the next commit in the log
	read       time.Time // the read of the feed of which everything has been returned
}

// Watch returns a watcher, to be closed, that begins now, or after a cursor. It waits for the
// feed to be read. It returns ErrCursorTooOld, ErrStopped, the errors of db.Store, or that of ctx.
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

// Cursor returns where the watcher is: after what Next has returned.
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

// wait returns when the log has changed, or when there is a value from timeout.
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

// begin goes to the end of the log.
func (w *Watcher) begin(ctx context.Context) error {
	if err := w.locked(ctx); err != nil {
		return err
	}
	defer w.log.mu.Unlock()
	w.enter(w.log.first + int64(len(w.log.commits)))
	w.cursor = Cursor{w.log.end, w.log.at}
	return nil
}

// enter goes to a place in the log. Its mutex is locked.
func (w *Watcher) enter(next int64) {
	w.joined, w.generation, w.next = time.Now(), w.log.generation, next
}

// resume goes on after the cursor.
func (w *Watcher) resume(ctx context.Context) error {
	for {
		if err := w.locked(ctx); err != nil {
			return err
		}
		old, covered := w.cursor.At < w.log.oldest, w.log.covers(w.cursor.Position)
		if covered && !old {
			w.enter(w.log.first)
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

// Next takes so many commits from the log at once, and ends with the first that makes their records
// longer than so many bytes.
const (
	maxNext      = 256
	maxNextBytes = 128 << 10
)

// Next returns the next commits, in order, and without those that changed nothing to watch. It
// waits for them until there is a value from timeout; then it returns none, but Cursor has moved.
// It returns ErrTooSlow, ErrCursorTooOld, ErrStopped, the errors of db.Store, or that of ctx.
func (w *Watcher) Next(ctx context.Context, timeout <-chan time.Time) ([]db.Commit, error) {
	for expired := false; ; {
		part, err := w.take()
		if err != nil {
			return nil, err
		}
		if part.restarted {
			if err := w.resume(ctx); err != nil {
				return nil, err
			}
			continue
		}
		commits, err := w.see(part)
		if len(commits) > 0 || err != nil || expired {
			return commits, err
		}
		if !part.end {
			continue
		}
		if expired, err = w.wait(ctx, part.changed, timeout); err != nil {
			return nil, err
		}
	}
}

// SeenAfter reports whether the watcher has returned everything that was committed before a
// moment.
func (w *Watcher) SeenAfter(t time.Time) bool { return w.read.After(t) }

// logPart is a part of the log, and what follows from its place.
type logPart struct {
	commits   []logCommit
	restarted bool // the log is no longer the one that the watcher has joined

	end     bool   // of the log; the others are set there only
	cursor  Cursor // of it
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
	n := 0
	for bytes := 0; n < min(maxNext, len(rest)) && bytes < maxNextBytes; n++ {
		bytes += len(rest[n].record)
	}
	p.commits = slices.Clone(rest[:n])
	w.next += int64(len(p.commits))
	if p.end = len(p.commits) == len(rest); p.end {
		p.cursor, p.read, p.changed = Cursor{l.end, l.at}, l.readAt, l.changed
	}
	return p, nil
}

// see returns what the watcher has not seen of a part, and moves its cursor behind that.
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
		// All that the cursor had when the watcher came has been read here by then; a server that
		// is not there any more is gone.
		w.cursor, w.read = p.cursor, p.read
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
