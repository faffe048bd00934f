package cli

import (
	"strings"
	"syscall"
	"testing"

	"github.com/locket-service/locket/internal/cli/exit"
)

// A watch that is told to end while its command runs kills all of that, and says that it was interrupted. If a signal has ended the command, the watch ends with the
// status of that.
func TestWatchInterrupted(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	watch := func(command string) *held {
		c.run("lock", "r", "--owner", "me", "--ttl", "1h")
		h := startHeld(t, c.address, "watch", "r", "--exec", command)
		h.printed("who holds", func(text string) bool { return strings.Contains(text, "active") })
		c.run("release", "r", "--owner", "me")
		return h
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		interrupted := watch("echo it runs; sleep 1000; true") // its output ends with the last process
		interrupted.printed("the command", func(text string) bool { return strings.Contains(text, "it runs") })
		interrupted.ends(sig, exit.Interrupted, "interrupted")
	}
	watch("kill -KILL $$").ends(0, exit.Signal+int(syscall.SIGKILL), "the command failed with status 137")
}
