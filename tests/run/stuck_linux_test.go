package run_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/locket-service/locket/tests/harness"
)

// A guard that somebody has stopped goes on when locket run gets TERM: so does the command.
func TestRunTermBehindAStoppedGuard(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	r := shell(t, server.Address(), "n", `trap "echo term; exit 42" TERM; echo ready; while :; do sleep 0.05; done`, "--ttl", "1h", "--grace", "1h")
	r.prints("ready")
	guard := r.helperPid("guard")
	harness.Must(t, syscall.Kill(guard, syscall.SIGSTOP))
	r.eventually("the guard is stopped", func() bool { return stateOf(guard) == "T" })
	r.signal(syscall.SIGTERM)
	r.ends(42)
	r.prints("term")
	unheld(t, server.Client(t), "n")
}

// A command that gets TERM is killed when its grace is over also where the guard cannot go on, as under a debugger.
func TestRunTermBehindAStuckGuard(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	r := shell(t, server.Address(), "n", `trap "" TERM; echo ready; while :; do sleep 0.05; done`, "--ttl", "1h", "--grace", "100ms")
	r.prints("ready")
	stuck(t, r.helperPid("guard"))
	r.signal(syscall.SIGTERM)
	r.ends(137, "does not run, so the command was killed")
	unheld(t, server.Client(t), "n")
}

// stuck stops a process, as a debugger does: CONT has no effect.
func stuck(t *testing.T, pid int) {
	t.Helper()
	done := make(chan error)
	t.Cleanup(func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		harness.Must(t, <-done)
	})
	stopped := make(chan error)
	go func() {
		runtime.LockOSThread() // which is the tracer
		threads, err := trace(pid)
		stopped <- err
		for err == nil && threads > 0 { // its parent learns of the end then
			var status unix.WaitStatus
			if _, err = unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil); err == nil && !status.Stopped() {
				threads--
			}
		}
		done <- err
	}()
	harness.Must(t, <-stopped)
}

// trace traces all threads of a process, which are stopped first so that they make no others.
func trace(pid int) (threads int, err error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return 0, err
	}
	tasks := tasksIn(pid, "T")
	for _, task := range tasks {
		if err := unix.PtraceAttach(task); err != nil {
			return 0, err
		}
	}
	tasksIn(pid, "t") // only now CONT has no effect
	return len(tasks), nil
}

// tasksIn returns the threads of a process when all of them have a state.
func tasksIn(pid int, state string) (tasks []int) {
	for {
		tasks = nil
		folders, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, folder := range folders {
			task, _ := strconv.Atoi(filepath.Base(folder))
			if stateOf(task) == state {
				tasks = append(tasks, task)
			}
		}
		if len(tasks) == len(folders) {
			return tasks
		}
		runtime.Gosched()
	}
}
