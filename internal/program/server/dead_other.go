//go:build !linux

package server

import "syscall"

// limitSilence does nothing: the system decides when a connection is dead.
func limitSilence(string, string, syscall.RawConn) error { return nil }
