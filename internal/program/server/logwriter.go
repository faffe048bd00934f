package server

import (
	"io"
	"sync/atomic"
	"time"
)

const (
	// logLines is how many lines of the log may wait to be written.
	logLines = 4096
	// logPatience is how long a line is waited for. After one that takes longer, nothing waits until all have been written.
	logPatience = 100 * time.Millisecond
	// logEnd limits how long the end of the server waits for the last lines.
	logEnd = time.Second
)

// logWriter writes the lines of the log on its own goroutine: no request waits for whoever reads the log, and does not. While a reader does
// not keep up, lines wait. Lines without room are lost, and counted.
type logWriter struct {
	to    io.Writer
	lines chan logLine
	late  atomic.Bool
	lost  atomic.Int64
	// report is called, beside the writes, with how many lines have been lost since the last call.
	report func(lines int64)
}

type logLine struct {
	text    []byte
	written chan struct{} // closed when it has been
}

func newLogWriter(to io.Writer) *logWriter {
	w := &logWriter{to: to, lines: make(chan logLine, logLines), report: func(int64) {}}
	go w.write()
	return w
}

// Write implements io.Writer. Each call is one line, as the handlers of slog write it.
func (w *logWriter) Write(line []byte) (int, error) {
	if !w.put(append([]byte(nil), line...), logPatience) {
		w.lost.Add(1)
	}
	return len(line), nil
}

// put adds a line, and waits for a while until it has been written. It returns false if there was no room.
func (w *logWriter) put(text []byte, patience time.Duration) bool {
	line := logLine{text, make(chan struct{})}
	select {
	case w.lines <- line:
	default:
		return false
	}
	if w.late.Load() && patience <= logPatience {
		return true
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-line.written:
	case <-timeout.C:
		w.late.Store(true)
	}
	return true
}

// flush waits for the lines that wait, for logEnd at most.
func (w *logWriter) flush() { w.put(nil, logEnd) }

func (w *logWriter) write() {
	for line := range w.lines {
		if len(line.text) > 0 {
			_, _ = w.to.Write(line.text) // there is no other place for an error
		}
		close(line.written)
		if len(w.lines) > 0 {
			continue
		}
		w.late.Store(false)
		if lost := w.lost.Swap(0); lost > 0 {
			go w.report(lost)
		}
	}
}
