package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/base/outage"
	"github.com/locket-service/locket/internal/doors/guard"
)

const (
	// auditLines is how many lines may wait to be written, including promised lines.
	auditLines = 16_384
	// auditBatch is how many bytes are written at once, or up to one line more.
	auditBatch = 64 << 10
	// auditRetry is the time from a write that failed to the next attempt.
	auditRetry = 100 * time.Millisecond
	// auditHang is the time until a write counts as hanging.
	auditHang = 2 * time.Second
	// auditOpen limits how long the file may take to open at the start, and auditEnd how long the end of the server
	// waits for the last lines.
	auditOpen, auditEnd = 5 * time.Second, time.Second
)

// auditFile is a log file that is opened again on SIGHUP, so that it can be renamed first (logrotate). Lines wait in a
// bounded queue for a goroutine that writes them, so that no call waits for the file. While the file cannot be written
// the lines are kept; lines beyond the bound are lost, and counted.
type auditFile struct {
	path    string
	log     *slog.Logger
	lost    prometheus.Counter
	warning rate.Sometimes

	lines chan []byte
	room  chan struct{} // has an entry for each line that waits or is promised
	began atomic.Int64  // when the running write or open began, in Unix nanoseconds; 0 without one
	fault atomic.Pointer[error]
	// reload calls the function that opens the file again, and tells the service manager about it.
	reload func(func())

	// The following fields belong to the goroutine that writes.
	file    *os.File
	batch   []byte // whole lines that are not written yet
	partial int    // number of bytes of its first line that the file already has
	count   int    // number of lines that wait for the end of the batch
	outages *outage.Log
}

func newAudit(path string, log *slog.Logger, registry prometheus.Registerer) *auditFile {
	f := &auditFile{
		path: path, log: log, reload: func(do func()) { do() }, warning: rate.Sometimes{First: 1, Interval: 10 * time.Second},
		outages: outage.New(log, slog.LevelError, "the audit log cannot be written", "the audit log can be written again"),
		lines:   make(chan []byte, auditLines), room: make(chan struct{}, auditLines),
		lost: metric.Counter("locket_audit_lost_total", "Number of lines lost while the audit log could not be written."),
	}
	registry.MustRegister(f.lost, metric.GaugeFunc("locket_audit_failing", "1 while the audit log cannot be written, else 0; the log says why.", func() float64 {
		if f.failing() != nil {
			return 1
		}
		return 0
	}), metric.GaugeFunc("locket_audit_waiting_lines", "Number of lines that wait to be written to the audit log.", func() float64 { return float64(len(f.room)) }))
	return f
}

// openAudit opens the file for the first time.
func openAudit(path string, log *slog.Logger, registry prometheus.Registerer) (*auditFile, error) {
	f := newAudit(path, log, registry)
	opened := make(chan error, 1)
	go func() { opened <- f.open() }()
	select {
	case err := <-opened:
		if err != nil {
			return nil, fmt.Errorf("--audit-log: %w", err)
		}
		return f, nil
	case <-time.After(auditOpen):
		return nil, fmt.Errorf("--audit-log: %s cannot be opened: its file system does not answer", path)
	}
}

// open opens the file at the path, and closes the previous one. After an error the previous one stays in use.
func (f *auditFile) open() error {
	f.began.Store(time.Now().UnixNano())
	defer f.began.Store(0)
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if f.file != nil {
		f.partial = f.begunIn(file)
		_ = f.file.Close()
	}
	f.file = file
	return nil
}

// begunIn returns how many bytes of the first line a file has that takes the place of the one in use: none unless it is the same.
func (f *auditFile) begunIn(next *os.File) int {
	before, err := f.file.Stat()
	if err != nil {
		return 0
	}
	if after, err := next.Stat(); err != nil || !os.SameFile(before, after) {
		return 0
	}
	return f.partial
}

// failing returns why lines cannot be written now, nil if they can be.
func (f *auditFile) failing() error {
	if began := f.began.Load(); began != 0 && time.Since(time.Unix(0, began)) > auditHang {
		return fmt.Errorf("%s cannot be written: its file system does not answer", f.path)
	}
	if err := f.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// Write implements io.Writer. Each call is one line, as the handlers of slog write it. It never waits.
func (f *auditFile) Write(line []byte) (int, error) {
	select {
	case f.room <- struct{}{}:
		return f.promised(line)
	default:
		f.lose(1, f.failing())
		return 0, errNoRoom
	}
}

var errNoRoom = errors.New("too many lines wait to be written to the audit log")

func (f *auditFile) lose(lines int, why error) {
	f.lost.Add(float64(lines))
	if why == nil {
		why = errNoRoom
	}
	f.warning.Do(func() { f.log.Error("lines of the audit log are lost", "error", why) })
}

// promised is Write for a line that was promised.
func (f *auditFile) promised(line []byte) (int, error) {
	f.lines <- append([]byte(nil), line...) // its capacity comes from f.room
	return len(line), nil
}

// promise reserves room for a line, or returns why the line could not be written.
func (f *auditFile) promise() error {
	if err := f.failing(); err != nil {
		return err
	}
	select {
	case f.room <- struct{}{}:
		return nil
	default:
		return errNoRoom
	}
}

// renege frees the room of a promised line.
func (f *auditFile) renege() { <-f.room }

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(text []byte) (int, error) { return w(text) }

// auditing returns the guard's audit log. With required, calls that cannot be recorded are refused.
func (f *auditFile) auditing(required bool) guard.AuditLog {
	l := guard.AuditLog{Lines: slog.New(slog.NewJSONHandler(f, nil))}
	if required {
		l.Promised = slog.New(slog.NewJSONHandler(writerFunc(f.promised), nil))
		l.Promise, l.Renege = f.promise, f.renege
	}
	return l
}

// Run implements ifrit.Runner: it writes the lines, and opens the file again on SIGHUP. When it ends, it writes the
// lines that wait, for a second at most.
func (f *auditFile) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f.write(again, end)
	}()
	close(ready)
	<-signals
	close(end)
	select {
	case <-ended:
	case <-time.After(auditEnd + auditRetry):
	}
	if left := len(f.room); left > 0 {
		f.lose(left, f.failing())
	}
	return nil
}

// write writes lines until the end, and then the waiting ones.
func (f *auditFile) write(again <-chan os.Signal, end <-chan struct{}) {
	defer func() { _ = f.file.Close() }()
	retry := time.NewTimer(auditRetry)
	defer retry.Stop()
	for {
		lines := f.lines
		if len(f.batch) > 0 {
			lines = nil
			retry.Reset(auditRetry)
		}
		select {
		case line := <-lines:
			f.collect(line)
		case <-retry.C:
		case <-again:
			f.reload(f.reopen)
		case <-end:
			for deadline := time.Now().Add(auditEnd); len(f.room) > 0 && time.Now().Before(deadline); {
				f.collectMore()
				if f.flush(); len(f.room) > 0 && (len(f.batch) > 0 || len(f.lines) == 0) {
					time.Sleep(auditRetry)
				}
			}
			return
		}
		f.flush()
	}
}

func (f *auditFile) reopen() {
	if err := f.open(); err != nil {
		f.log.Error("the audit log cannot be opened again; the old file stays in use", "error", err)
		return
	}
	f.log.Info("the audit log was opened again")
}

// collect adds a line to the batch, and more lines that wait.
func (f *auditFile) collect(line []byte) {
	f.batch = append(f.batch, line...)
	f.count++
	f.collectMore()
}

func (f *auditFile) collectMore() {
	for len(f.batch) < auditBatch {
		select {
		case line := <-f.lines:
			f.batch = append(f.batch, line...)
			f.count++
		default:
			return
		}
	}
}

// flush writes the batch. Lines that cannot be written stay in it; a partly written line is written whole to the next
// file.
func (f *auditFile) flush() {
	if len(f.batch) == 0 {
		return
	}
	f.began.Store(time.Now().UnixNano())
	n, err := f.file.Write(f.batch[f.partial:])
	f.began.Store(0)
	f.partial += n
	whole := bytes.LastIndexByte(f.batch[:f.partial], '\n') + 1
	f.batch, f.partial = append(f.batch[:0], f.batch[whole:]...), f.partial-whole
	f.outages.Report(err)
	if err != nil {
		f.fault.Store(&err)
		return
	}
	f.fault.Store(nil)
	for range f.count {
		<-f.room
	}
	f.count = 0
}
