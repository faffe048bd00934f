package pipe

import (
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// maxUnread is how much may wait to be written before whoever does not read is waited for.
const maxUnread = 16 << 20

// outbox writes in the background, so that no writer waits for the reader.
type outbox struct {
	w io.Writer

	mu      sync.Mutex
	changed sync.Cond
	unread  []byte
	writing int // how many bytes are being written
	closed  bool
	err     error         // of writing; then everything is dropped
	done    chan struct{} // closed when nothing will be written any more
}

// newOutbox returns an outbox, which must be closed. broken is called when writing fails.
func newOutbox(w io.Writer, broken func(error)) *outbox {
	o := &outbox{w: w, done: make(chan struct{})}
	o.changed.L = &o.mu
	go o.run(broken)
	return o
}

func (o *outbox) run(broken func(error)) {
	defer close(o.done)
	for {
		text := o.take()
		if text == nil {
			return
		}
		if _, err := o.w.Write(text); err != nil {
			o.mu.Lock()
			o.err, o.unread, o.writing = err, nil, 0
			o.changed.Broadcast()
			o.mu.Unlock()
			broken(err)
			return
		}
	}
}

// take waits for text to write; nil is the end.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = 0
	o.changed.Broadcast()
	for len(o.unread) == 0 && !o.closed {
		o.changed.Wait()
	}
	text := o.unread
	o.unread, o.writing = nil, len(text)
	return text
}

// put has a text written, after the earlier ones.
func (o *outbox) put(text []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.unread = append(o.unread, text...)
		o.changed.Broadcast()
	}
}

// Write implements io.Writer for a log: rather than wait for a reader it drops the text.
func (o *outbox) Write(text []byte) (int, error) {
	o.mu.Lock()
	full := o.full()
	o.mu.Unlock()
	if !full {
		o.put(text)
	}
	return len(text), nil
}

// awaitReader waits until not too much is unread.
func (o *outbox) awaitReader() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.full() {
		o.changed.Wait()
	}
}

// full reports whether too much is unread. The caller holds the mutex.
func (o *outbox) full() bool { return len(o.unread)+o.writing > maxUnread }

// close waits until everything is written, for a while.
func (o *outbox) close(timeout time.Duration) {
	o.mu.Lock()
	o.closed = true
	o.changed.Broadcast()
	o.mu.Unlock()
	select {
	case <-o.done:
	case <-time.After(timeout):
	}
}

// NewLogger returns a log of lines of text, from a level on, that does not wait for whoever reads it: a program that does not must not hold
// up the claims. close writes what is left, for a moment.
func NewLogger(w io.Writer, level slog.Level) (log *slog.Logger, close func()) {
	o := newOutbox(w, func(error) {})
	handler := slog.NewTextHandler(o, &slog.HandlerOptions{Level: level})
	return slog.New(handler).With("keychain", os.Getpid()), func() { o.close(500 * time.Millisecond) }
}
