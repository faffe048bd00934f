package run

import (
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process. The process group in its foreground may read from it, and gets the signals of
// Ctrl-C and Ctrl-Z. Others are stopped when they read (TTIN) or change its mode (TTOU).
type terminal struct {
	fd int
	// own is the group of this process.
	own int
}

// controllingTerminal returns the terminal that controls this process, nil if none does.
func controllingTerminal() *terminal {
	fd, err := syscall.Open("/dev/tty", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, own: syscall.Getpgrp()}
}

// foreground returns the group in the foreground of a terminal, 0 if it is none of ours.
func foreground(fd int) int {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

func (t *terminal) foreground() int {
	if t == nil {
		return 0
	}
	return foreground(t.fd)
}

// give puts a group in the foreground. This process must ignore TTOU.
func (t *terminal) give(group int) { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }

// isJob reports whether this process alone is a shell's foreground job: it leads its group, and is not part of a pipeline.
func (t *terminal) isJob() bool {
	return t != nil && t.foreground() == t.own && t.own == syscall.Getpid() && foreground(0) == t.own && foreground(1) == t.own
}

// dieOfInterrupt ends this process by INT if it is in the foreground, because a shell then ends its loop or script, too. With the whole
// group it does what Ctrl-C would have done that went to the command alone.
func (t *terminal) dieOfInterrupt(group bool) {
	if t == nil || t.foreground() != t.own {
		return
	}
	signal.Reset(syscall.SIGINT)
	target := syscall.Getpid()
	if group {
		target = 0
	}
	_ = syscall.Kill(target, syscall.SIGINT)
	time.Sleep(time.Second) // it may take a moment
}
