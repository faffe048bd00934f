package run

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// helperFlag makes the process that Run starts a reaper, the parent of the guard.
const helperFlag = ReaperFlag

// sinceBoot is a clock that all processes share, that nobody sets, and that counts while the machine sleeps.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(os.NewSyscallError("clock_gettime", err))
	}
	return time.Duration(now.Nano())
}

// thisProgram is the path of the program that runs, even if its file was replaced.
func thisProgram() (string, error) { return "/proc/self/exe", nil }

// ownGroup makes a child begin a process group, and get a signal when the thread that has started it ends; none if atEnd is 0.
func ownGroup(atEnd syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: atEnd}
}

// becomeReaper makes this process the new parent of its descendants whose parents end before them.
func becomeReaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// childrenOf returns the processes by their parents. What ends meanwhile may be missing.
func childrenOf() map[int][]int {
	children := make(map[int][]int)
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent := parentOf(name); parent != 0 {
			children[parent] = append(children[parent], pid)
		}
	}
	return children
}

// parentOf returns the parent of a process, 0 if it has none or is gone.
func parentOf(pid string) int {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0
	}
	// pid (name) state parent: the name may have anything in it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

// isPending reports whether a signal that a process does not block waits for it, as one to stop does for a process that is stopped.
func isPending(pid int, sig syscall.Signal) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	signals := func(name string) (set uint64) {
		_, text, _ := bytes.Cut(status, []byte("\n"+name+":\t"))
		text, _, _ = bytes.Cut(text, []byte("\n"))
		set, _ = strconv.ParseUint(string(text), 16, 64)
		return set
	}
	return signals("ShdPnd")&^signals("SigBlk")&(1<<(sig-1)) != 0
}

// signalLeft sends a signal to all that comes from this process. When a process in the
// middle has ended, those below become children of this one, so who repeats it reaches all.
func signalLeft(_ int, sig syscall.Signal) (err error) {
	children := childrenOf()
	var walk func(pid int)
	walk = func(pid int) {
		for _, child := range children[pid] {
			if failed := syscall.Kill(child, sig); errors.Is(failed, syscall.EPERM) {
				err = failed
			}
			walk(child)
		}
	}
	walk(os.Getpid())
	return err
}

// isLeft reports whether processes are left that are not children of this one: they all are.
func isLeft(int) bool { return false }

func replaceStream(by, stream int) { _ = unix.Dup3(by, stream, 0) }
