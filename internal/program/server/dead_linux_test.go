package server

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDeadConnections: what is sent to a client that is gone without a word, as a machine that has lost its network, ends its
// connection soon: its streams count against its quota until then.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	l, err := listen(Config{HTTPAddress: "127.0.0.1:0"})
	must(t, err)
	defer l.close()
	client, err := net.Dial("tcp", l.http.Addr().String())
	must(t, err)
	defer func() { _ = client.Close() }()
	accepted, err := l.http.Accept()
	must(t, err)
	defer func() { _ = accepted.Close() }()
	socket, err := accepted.(*net.TCPConn).SyscallConn()
	must(t, err)
	var timeout int
	var failed error
	must(t, socket.Control(func(fd uintptr) {
		timeout, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}))
	must(t, failed)
	if want := int(deadAfter.Milliseconds()); timeout != want {
		t.Errorf("what is not acknowledged ends it after %d ms, want %d", timeout, want)
	}
}
