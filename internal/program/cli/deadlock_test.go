package cli

import (
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/program/cli/exit"
)

// TestClaimInDeadlock: a command whose claim is aborted to end a deadlock names the members.
func TestClaimInDeadlock(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("claim", "x", "--owner", "a", "--ttl", "5m")
	c.run("claim", "y", "--owner", "b", "--ttl", "5m")
	c.queue("claim", "y", "--owner", "a", "--ttl", "5m")
	c.queue("claim", "x", "--owner", "b", "--ttl", "5m", "--id", "awaited")
	for _, args := range [][]string{
		{"get", "awaited", "--wait", "1m"},
		{"claim", "x", "--owner", "b", "--ttl", "5m", "--wait", "1m"},
		{"claim", "x", "--owner", "b", "--ttl", "5m", "--wait", "1m", "--keep"},
		{"claim", "x", "--owner", "b", "--ttl", "5m", "--hold"},
	} {
		if _, stderr, status := c.try(args...); status != exit.Failure || !strings.Contains(stderr, `"b" waited for "x", "a" waited for "y"`) {
			t.Errorf("locket %q: status %d, %s", args, status, stderr)
		}
	}
}
