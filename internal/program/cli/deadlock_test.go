package cli

import (
	"testing"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/run"
)

// TestClaimInDeadlock: a command whose claim is aborted to end a deadlock names the members.
func TestClaimInDeadlock(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("claim", "x", "--owner", "a", "--ttl", "5m")
	c.run("claim", "y", "--owner", "b", "--ttl", "5m")
	c.queue("claim", "y", "--owner", "a", "--ttl", "5m")
	c.queue("claim", "x", "--owner", "b", "--ttl", "5m", "--id", "awaited")
	for _, test := range []struct {
		line   string
		status int
	}{
		{"get awaited --wait 1m", exit.Failure},
		{"get awaited --wait 1m", exit.Failure}, // it has ended before
		{"claim x --owner b --ttl 5m --wait 1m", exit.Failure},
		{"claim x --owner b --ttl 5m --wait 1m --keep", exit.Failure},
		{"claim x --owner b --ttl 5m --hold", exit.Failure},
		{"elect x --owner b", exit.Failure},
		{"elect x --owner b -- COMMAND", run.NotAcquired},
		{"run x --owner b -- COMMAND", run.NotAcquired},
	} {
		startHeld(t, c.address, fieldsOf(test.line)...).ends(0, test.status,
			`locket: "x" was not acquired: the claim was aborted to end a deadlock of owners that waited for each other: "b" waited for "x", "a" waited for "y"`)
	}
}
