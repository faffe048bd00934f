package lock_test

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

// sinceBoot is the clock that all processes share and nobody sets: CLOCK_MONOTONIC.
func sinceBoot() time.Duration {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(os.NewSyscallError("clock_gettime", errno))
	}
	return time.Duration(ts.Nano())
}

// diesWithParent has the kernel kill a child when the thread that started it ends.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
