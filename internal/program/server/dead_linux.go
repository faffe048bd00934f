package server

import (
	"cmp"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSilence is a net.ListenConfig.Control: connections of the listener end after deadAfter without an acknowledgement of sent
// data.
func limitSilence(_, _ string, socket syscall.RawConn) error {
	var err error
	failed := socket.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
	})
	return cmp.Or(failed, err)
}
