package run_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
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
		for _, thread := range threads { // its parent learns of the end then
			err = errors.Join(err, awaitEnd(thread))
		}
		done <- err
	}()
	harness.Must(t, <-stopped)
}

// trace traces all threads of a process, which are stopped first so that they make no others. It returns them with the first one last, whose
// end the kernel tells last.
func trace(pid int) (threads []int, err error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	tasks := tasksIn(pid, "T")
	for _, task := range tasks {
		if err := unix.PtraceAttach(task); err != nil {
			return nil, err
		}
	}
	tasksIn(pid, "t") // only now CONT has no effect
	return append(slices.DeleteFunc(tasks, func(task int) bool { return task == pid }), pid), nil
}

// awaitEnd waits for the end of a thread that this thread traces. It waits for no other one: that might be a child that this thread has started
// for another test.
func awaitEnd(thread int) error {
	for {
		var status unix.WaitStatus
		switch _, err := unix.Wait4(thread, &status, unix.WALL, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case !status.Stopped():
			return nil
		}
	}
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
