package server

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// auditFile is a file of lines that is opened again on a signal, so that it can be renamed first
// (logrotate). A line that cannot be written is lost, counted and said in the log; no call waits or
// fails for it.
type auditFile struct {
	path string
	log  *slog.Logger
	lost prometheus.Counter
	said rate.Sometimes

	mu   sync.Mutex
	file *os.File
}

func openAudit(path string, log *slog.Logger, registry prometheus.Registerer) (*auditFile, error) {
	f := &auditFile{path: path, log: log, said: rate.Sometimes{First: 1, Interval: 10 * time.Second}, lost: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "locket_audit_lost_total", Help: "Number of lines that could not be written to the audit log.",
	})}
	registry.MustRegister(f.lost)
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("--audit-log: %w", err)
	}
	return f, nil
}

// open opens the file at the path, and closes the one before. On an error that one stays in use.
func (f *auditFile) open() error {
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		_ = f.file.Close()
	}
	f.file = file
	return nil
}

// Write implements io.Writer. The writers of slog write a line at once.
func (f *auditFile) Write(line []byte) (int, error) {
	f.mu.Lock()
	n, err := f.file.Write(line)
	f.mu.Unlock()
	if err != nil {
		f.lost.Inc()
		f.said.Do(func() { f.log.Error("lines of the audit log are lost", "error", err) })
	}
	return n, err
}

// Run implements ifrit.Runner: it opens the file again on SIGHUP.
func (f *auditFile) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	close(ready)
	for {
		select {
		case <-again:
			if err := f.open(); err != nil {
				f.log.Error("the audit log cannot be opened again; the old file stays in use", "error", err)
				continue
			}
			f.log.Info("the audit log was opened again")
		case <-signals:
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.file.Close()
		}
	}
}
