package server

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/doors/tracing"
)

// The formats of the log that Cloud Foundry's Locket has: timestamps as seconds, or in RFC 3339.
const (
	formatLager        = "lager"
	formatLagerRFC3339 = "lager-rfc3339"
)

// openLog returns the log of a configuration, and what writes its lines. It goes to standard error; in the formats of Cloud Foundry it goes
// to out.
func openLog(c Config, out io.Writer) (*slog.Logger, *logWriter, error) {
	to := out
	if !c.isLager() {
		to = os.Stderr
	}
	lines := newLogWriter(to)
	log, err := newLogger(c, lines)
	if err == nil {
		lines.report = func(lost int64) { log.Warn("lines of the log were lost: it was not read", "lines", lost) }
	}
	return log, lines, err
}

// newLogger returns the log of a configuration, which goes to to. Its lines have the id of the request.
func newLogger(c Config, to io.Writer) (*slog.Logger, error) {
	handler, err := c.newLogHandler(to)
	if err != nil {
		return nil, err
	}
	return slog.New(grpcserver.LogRequestID(tracing.Log(handler))), nil
}

func (c Config) newLogHandler(to io.Writer) (slog.Handler, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %q: must be debug, info, warn or error", c.LogLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.LogFormat {
	case "text":
		return slog.NewTextHandler(to, options), nil
	case "json":
		return slog.NewJSONHandler(to, options), nil
	case "auto":
		if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return slog.NewTextHandler(to, options), nil
		}
		return slog.NewJSONHandler(to, options), nil
	case formatLager, formatLagerRFC3339:
		return &lagerHandler{out: to, level: level, rfc3339: c.LogFormat == formatLagerRFC3339}, nil
	default:
		return nil, fmt.Errorf("--log-format: %q: must be text, json, auto, %s or %s", c.LogFormat, formatLager, formatLagerRFC3339)
	}
}

// isLager reports whether the format of the log is one of Cloud Foundry's.
func (c Config) isLager() bool { return strings.HasPrefix(c.LogFormat, formatLager) }

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
