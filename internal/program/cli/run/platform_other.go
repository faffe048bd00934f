//go:build !linux

package run

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// helperFlag makes the process that Run starts a guard, because no reaper inherits processes here.
const helperFlag = GuardFlag

// cgroup is always "": control groups are Linux's.
type cgroup string

func makeCgroup() cgroup { return "" }

func (cgroup) start(path string, words []string, attr *syscall.ProcAttr) (pid int, err error) {
	return syscall.ForkExec(path, words, attr)
}

func (cgroup) kill() bool { return false }

func (cgroup) remove() {}

func (cgroup) tryRemove() bool { return true }

// sinceBoot is a clock that all processes share. Here it is one that can be set.
func sinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }

func thisProgram() (string, error) { return os.Executable() }

// ownGroup makes a child begin a process group. Only Linux signals the end of its parent.
func ownGroup(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// becomeReaper does nothing: only Linux has subreapers.
func becomeReaper() {}

// isPending is always false: only Linux shows the pending signals of another process.
func isPending(int, syscall.Signal) bool { return false }

func childrenOf() map[int][]int { return nil }

// signalLeft sends a signal to the remaining processes of a group. What has left the group is not found.
func signalLeft(group int, sig syscall.Signal) error {
	err := syscall.Kill(-group, sig)
	if errors.Is(err, syscall.EPERM) && syscall.Kill(-group, 0) != nil { // macOS says so of zombies
		return nil
	}
	return err
}

// isLeft reports whether something is left of a group.
func isLeft(group int) bool { return syscall.Kill(-group, 0) == nil }

func replaceStream(by, stream int) { _ = syscall.Dup2(by, stream) }
