package cli

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// A deadlock that lasts, since its claims allow it, shows wherever people look; explain says the cheapest way out.
func TestDeadlockShows(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
	allow := []string{"--ttl", "5m", "--allow-deadlock"}
	c.run("claim", "x", "--owner", "a", "--ttl", "5m")
	c.run("claim", "y", "--owner", "b", "--ttl", "5m")
	c.queue(append([]string{"claim", "y", "--owner", "a"}, allow...)...)
	c.queue(append([]string{"claim", "x", "--owner", "b", "--id", "youngest"}, allow...)...)
	c.says("This is a deadlock; for the way out: locket explain x\n", "resource", "x")
	c.says("This is a deadlock: its holder waits for claims that wait for it. The cheapest way out: b stops waiting (locket release --id youngest)", "explain", "x")
	harness.Until(t, "the youngest to wait for more than a second", func() bool {
		waited, err := strconv.ParseFloat(strings.TrimSpace(c.run("get", "youngest", "-o", "jsonpath=$.waiting_duration")), 64)
		return err == nil && waited > 1
	})
	harness.Must(t, server.Restart()) // a server looks at its start, and then every half minute
	harness.Eventually(t, func() error {
		stdout, stderr, status := c.try("status")
		if status != exit.Degraded || !strings.HasPrefix(stdout, "degraded: 1 deadlock lasts, because its claims allow it: see") {
			return fmt.Errorf("status %d, %s, %s", status, stdout, stderr)
		}
		return nil
	})
	for _, command := range [][]string{{"resources"}, {"top", "--once"}} {
		if text := c.run(command...); strings.Count(text, "1 deadlock") != 2 {
			t.Errorf("%q: %s", command, text)
		}
	}
	c.run("release", "--id", "youngest")
	if text := c.run("resources"); strings.Contains(text, "deadlock") {
		t.Error(text)
	}
	harness.Eventually(t, func() error {
		if stdout, _, status := c.try("status"); status != exit.OK {
			return fmt.Errorf("%s", stdout)
		}
		return nil
	})
}
