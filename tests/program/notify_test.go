package program_test

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// TestServiceManager: the server notifies a service manager when it is ready, reloads and stops, and sends watchdog
// messages regularly, even while it has no requests.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(folder, "notify"), Net: "unixgram"})
	harness.Must(t, err)
	defer socket.Close()
	// until reads messages until one begins with want, and fails for one that is neither that nor allowed.
	until := func(want string, allowed ...string) {
		t.Helper()
		message := make([]byte, 1000)
		harness.Must(t, socket.SetReadDeadline(time.Now().Add(harness.HangTimeout)))
		for {
			n, err := socket.Read(message)
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			got := string(message[:n])
			if strings.HasPrefix(got, want) {
				return
			}
			if len(allowed) == 0 || got != allowed[0] {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	const fed = "WATCHDOG=1"
	l := fixtures.NewLocket(t, "embedded:"+filepath.Join(folder, "data"), "--audit-log", filepath.Join(folder, "audit"))
	l.Env = []string{"NOTIFY_SOCKET=" + filepath.Join(folder, "notify"), "WATCHDOG_USEC=60000000"}
	harness.Must(t, l.Launch())
	until("READY=1", fed)
	for range 3 {
		until(fed)
	}
	harness.Must(t, l.AwaitServing(harness.HangTimeout))
	harness.Must(t, l.Signal(syscall.SIGHUP))
	until("RELOADING=1\nMONOTONIC_USEC=", fed)
	until("READY=1", fed)
	if code, _ := l.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	until("STOPPING=1", fed)
}
