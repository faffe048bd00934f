//go:build !linux

package lock_test

import (
	"syscall"
	"time"
)

// sinceBoot reads the system clock, which all processes share. On this system it may be set.
func sinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }

// diesWithParent does nothing on this system.
func diesWithParent() *syscall.SysProcAttr { return nil }
