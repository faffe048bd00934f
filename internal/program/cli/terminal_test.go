//go:build linux

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// onTerminal returns the output of a command line on a terminal.
func onTerminal(t *testing.T, env []string, args ...string) string {
	t.Helper()
	outside, inside := harness.OpenTerminal(t)
	program := fixtures.LocketProgram(t) // which may take minutes to build
	ctx, cancel := context.WithTimeout(t.Context(), harness.HangTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(fixtures.CleanEnv(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inside, inside, inside
	harness.Must(t, cmd.Start())
	inside.Close()
	shown, _ := io.ReadAll(outside) // ends with EIO when nobody has the other end
	harness.Must(t, cmd.Wait())
	return strings.ReplaceAll(string(shown), "\r\n", "\n")
}

// Tables, times and colors are for people who look at a terminal.
func TestTerminal(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("lock", "k\x1b[31m", "--owner", "me", "--ttl", "5m")
	show := func(env []string, args ...string) string {
		return onTerminal(t, append(env, "LOCKET_ADDRESS="+c.address, "TERM=xterm", "LOCKET_CONTEXT_FILE="+os.DevNull), args...)
	}
	for name, test := range map[string]struct {
		env         []string
		color, none string
	}{
		"in color":     {nil, "\x1b[32mactive\x1b[0m", "\x1b[31m"},
		"NO_COLOR":     {[]string{"NO_COLOR=1"}, " active ", "\x1b"},
		"TERM is dumb": {[]string{"TERM=dumb"}, " active ", "\x1b"},
	} {
		shown := ""
		if name == "TERM is dumb" {
			shown = onTerminal(t, append(test.env, "LOCKET_ADDRESS="+c.address, "LOCKET_CONTEXT_FILE="+os.DevNull), "claims")
		} else {
			shown = show(test.env, "claims")
		}
		if !strings.Contains(shown, test.color) || strings.Contains(shown, test.none) || !strings.Contains(shown, "s ago") {
			t.Errorf("%s: %q", name, shown)
		}
	}
	if shown := show(nil, "fetch", "k\x1b[31m"); !strings.Contains(shown, `"k\x1b[31m"`) || !strings.Contains(shown, "NAME") {
		t.Errorf("fetch: %q", shown)
	}
	if shown := show(nil, "lock", "l\x1b[31m", "--owner", "me"); strings.Trim(shown, "0123456789") != "\n" {
		t.Errorf("lock: %q", shown)
	}
	if shown := show(nil, "claims", "-o", "json"); strings.Contains(shown, "\x1b") {
		t.Errorf("JSON: %q", shown)
	}
}

// The interrupt key ends a wait, and the claim leaves the queue.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("lock", "k", "--owner", "me", "--ttl", "5m")
	for _, test := range []struct {
		signal os.Signal
		keep   bool
		words  string
		status string
	}{
		{unix.SIGINT, false, `interrupted before "k" was held`, "withdrawn"},
		{unix.SIGTERM, false, `interrupted before "k" was held`, "withdrawn"},
		{unix.SIGINT, true, "stays in the queue; to withdraw it: locket release --id", "waiting"},
	} {
		id := fmt.Sprintf("%s-%v", strings.Fields(test.signal.String())[0], test.keep)
		args := []string{"claim", "k", "--id", id, "--wait", "1m", fmt.Sprintf("--keep=%v", test.keep), "--address", c.address, "--context-file", os.DevNull}
		cmd := exec.CommandContext(t.Context(), fixtures.LocketProgram(t), args...)
		cmd.Env = fixtures.CleanEnv()
		var complaint strings.Builder
		cmd.Stderr = &complaint
		harness.Must(t, cmd.Start())
		harness.Eventually(t, func() error {
			_, stderr, status := c.try("get", id)
			if status != exit.OK {
				return fmt.Errorf("no claim yet: %s", stderr)
			}
			return nil
		})
		harness.Must(t, cmd.Process.Signal(test.signal))
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exit.Interrupted || !strings.Contains(complaint.String(), test.words) {
			t.Errorf("%s: status %d, %s", id, code, complaint.String())
		}
		if claim := c.run("get", id); !strings.Contains(claim, test.status) {
			t.Errorf("%s: %s", id, claim)
		}
	}
}
