package pipe

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// parentPause is how often it is looked whether the parent lives. Most often the end of the
// input says so at once; but it does not come while a child of the parent has the pipe too.
const parentPause = 200 * time.Millisecond

// Parent is the process that has started this one.
type Parent struct {
	pid     int
	process *os.Process
	with    syscall.Signal // 0: it is not signalled
	grace   time.Duration  // then SIGKILL; 0: never
	kill    sync.Once
}

// NewParent returns the process that has started this one. Call it before that process may have ended. When a claim is lost it gets a
// signal, unless that is 0, and after a time of grace KILL, unless that is 0.
func NewParent(with syscall.Signal, grace time.Duration) (*Parent, error) {
	pid := os.Getppid()
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, fmt.Errorf("the parent, process %d: %w", pid, err)
	}
	return &Parent{pid: pid, process: process, with: with, grace: grace}, nil
}

// alive reports whether the parent lives: when it dies, another process takes its place.
func (p *Parent) alive() bool { return os.Getppid() == p.pid }

// await returns when the parent has died, or the context is done.
func (p *Parent) await(ctx context.Context) error {
	look := time.NewTicker(parentPause)
	defer look.Stop()
	for p.alive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	return nil
}

// signal tells the parent that it has lost a claim, and kills it if that does not end it.
func (p *Parent) signal(log *slog.Logger) {
	if p.with == 0 {
		return
	}
	p.send(p.with, log)
	if p.grace > 0 {
		p.kill.Do(func() { time.AfterFunc(p.grace, func() { p.send(syscall.SIGKILL, log) }) })
	}
}

func (p *Parent) send(sig syscall.Signal, log *slog.Logger) {
	if !p.alive() {
		return
	}
	log.Error("a claim is lost: signalling the parent", "pid", p.pid, "signal", unix.SignalName(sig))
	if err := p.process.Signal(sig); err != nil {
		log.Error("could not signal the parent", "pid", p.pid, "error", err)
	}
}

// ParseSignal returns a signal by its name: "TERM", "SIGTERM"; 0 for "".
func ParseSignal(name string) (syscall.Signal, error) {
	if name == "" {
		return 0, nil
	}
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if sig == 0 {
		return 0, fmt.Errorf("%q: must be the name of a signal, like TERM", name)
	}
	return sig, nil
}
