package lock_test

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

// sinceBoot reads CLOCK_MONOTONIC, which all processes share and nobody can set.
func sinceBoot() time.Duration {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(os.NewSyscallError("clock_gettime", errno))
	}
	return time.Duration(ts.Nano())
}

// diesWithParent makes the kernel kill a child when the thread that started it ends.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
