package notify_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/base/notify"
)

// listen returns an address, and what the next message to it is.
func listen(t *testing.T, address string) (next func() string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func() string {
		message := make([]byte, 1000)
		n, err := conn.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
}

func getenv(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

// TestMessages: the manager gets the protocol's messages in order, at a path and at an abstract address.
func TestMessages(t *testing.T) {
	for _, address := range []string{filepath.Join(t.TempDir(), "notify"), "@locket-notify-test-" + strconv.Itoa(os.Getpid())} {
		next := listen(t, address)
		m := notify.New(getenv(map[string]string{"NOTIFY_SOCKET": address}))
		for _, test := range []struct {
			tell func() error
			want string
		}{{m.Ready, "READY=1"}, {m.Feed, "WATCHDOG=1"}, {m.Stopping, "STOPPING=1"}} {
			if err := test.tell(); err != nil {
				t.Fatal(err)
			}
			if got := next(); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		}
		m.Reload(func() {
			begin, clock, _ := strings.Cut(next(), "\nMONOTONIC_USEC=")
			if usec, err := strconv.ParseUint(clock, 10, 64); begin != "RELOADING=1" || err != nil || usec == 0 {
				t.Errorf("while it reloads: %q, %q", begin, clock)
			}
		})
		if got := next(); got != "READY=1" {
			t.Errorf("after the reload: %q", got)
		}
	}
}

// TestNoManager: without a manager, or with one that is gone, the work is done.
func TestNoManager(t *testing.T) {
	for _, env := range []map[string]string{{}, {"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "nobody")}} {
		m, done := notify.New(getenv(env)), false
		m.Reload(func() { done = true })
		if !done {
			t.Errorf("%v: it was not done", env)
		}
		if err := m.Ready(); (err != nil) != (len(env) > 0) {
			t.Errorf("%v: %v", env, err)
		}
	}
}

func TestWatched(t *testing.T) {
	for _, test := range []struct {
		usec, pid string
		want      bool
	}{{"", "", false}, {"60000000", "", true}, {"60000000", strconv.Itoa(os.Getpid()), true}, {"60000000", "1", false}} {
		m := notify.New(getenv(map[string]string{"NOTIFY_SOCKET": "@nobody", "WATCHDOG_USEC": test.usec, "WATCHDOG_PID": test.pid}))
		if m.Watched() != test.want {
			t.Errorf("%+v: %v", test, m.Watched())
		}
	}
	if notify.New(getenv(map[string]string{"WATCHDOG_USEC": "1"})).Watched() {
		t.Error("watched, without a manager")
	}
}
