package run

import (
	"os"
	"slices"
	"syscall"

	"github.com/locket-service/locket/internal/base/periodic"
)

// helper is the process that this one has started: the reaper, or the guard where there is no reaper.
type helper struct {
	process *os.Process
	gone    chan struct{} // closed when it has ended
}

// startHelper starts this program as a helper.
func (p pipes) startHelper(flag string, env []string) (*helper, error) {
	pid, err := p.startSelf(flag, env)
	if err != nil {
		return nil, err
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	h := &helper{process: process, gone: make(chan struct{})}
	go func() {
		defer close(h.gone)
		_, _ = process.Wait()
	}()
	return h, nil
}

// children returns the children of this process that have to do with the job. When the reaper is dead, that is the guard; when both are, what they
// have left.
func (j *job) children() []int {
	return slices.DeleteFunc(childrenOf()[os.Getpid()], func(pid int) bool { return slices.Contains(j.others, pid) })
}

// wakeHelpers has the reaper and the guard go on if somebody has stopped them.
func (j *job) wakeHelpers() {
	_ = j.helper.process.Signal(syscall.SIGCONT)
	guard := j.children()
	if !periodic.IsClosed(j.helper.gone) {
		guard = childrenOf()[j.helper.process.Pid]
	}
	for _, pid := range guard {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}
