//go:build !linux

package lock_test

import (
	"syscall"
	"time"
)

// sinceBoot is a clock that all processes share. Here it may be set.
func sinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }

// diesWithParent promises nothing here.
func diesWithParent() *syscall.SysProcAttr { return nil }
