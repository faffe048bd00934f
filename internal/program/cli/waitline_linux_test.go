package cli

import (
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// On a terminal one line describes the wait, and is gone in the end; a dumb terminal gets none.
func TestWaitLine(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for name, args := range map[string][]string{
		"claim": {"claim", "NAME", "--wait", "1m"}, "get": {"get", "get-b", "--wait", "1m"}, "dumb": {"claim", "NAME", "--id", "dumb-b", "--wait", "1m"},
		"hold": {"claim", "NAME", "--hold"}, "lead": {"elect", "NAME"},
		"run": {"run", "NAME", "--", "echo", "active"}, "elect": {"elect", "NAME", "--", "echo", "active"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resource, env := "k\x1b[2J"+name, []string(nil)
			c := &cli{t: t, address: c.address, stable: c.stable}
			c.run("claim", resource, "--owner", "o\x1b[31m", "--id", name+"-a", "--ttl", "5m")
			switch name {
			case "get":
				c.queue("claim", resource, "--id", "get-b")
			case "dumb":
				env = []string{"TERM=dumb"}
			}
			args = append([]string{args[0], "--address", c.address}, args[1:]...)
			if args[3] == "NAME" {
				args[3] = resource
			}
			p := startOnTerminal(t, env, args...)
			const line = "\r\x1b[Klocket: waiting for \"k\\x1b[2J"
			if name == "dumb" {
				harness.Until(t, "the claim", func() bool { _, _, status := c.try("get", "dumb-b"); return status == exit.OK })
			} else {
				harness.Until(t, "the line", func() bool {
					return strings.Contains(p.all(), `, held by "o\x1b[31m" for `) && strings.Contains(p.all(), "s, place 1 in the queue")
				})
			}
			c.run("release", "--id", name+"-a")
			if name == "hold" || name == "lead" {
				harness.Until(t, "the hold", func() bool { return strings.Contains(p.all(), "is held, with token") })
				p.press("\x03")
			}
			_ = harness.Await(t, "end", p.ended)
			if code := p.cmd.ProcessState.ExitCode(); code != exit.OK {
				t.Errorf("status %d", code)
			}
			if name != "lead" {
				harness.Until(t, "the answer", func() bool { return strings.Contains(p.all(), "active") })
			}
			text := p.all()
			_, rest, _ := cutLast(text, "\r\x1b[K")
			if name == "dumb" && strings.Contains(text, "\x1b") || name != "dumb" && (!strings.Contains(text, line) || strings.Contains(rest, "waiting for")) {
				t.Errorf("%q", text)
			}
		})
	}
}

// On a terminal a feed of changes begins with the names of its columns; elsewhere every line is a change.
func TestNamesOfColumns(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("claim", "k", "--owner", "me", "--ttl", "5m")
	for name, args := range map[string][]string{"watch": {"watch"}, "wide": {"watch", "-o", "wide"}, "leaders": {"elect", "k", "--observe"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startOnTerminal(t, []string{"NO_COLOR=1"}, append(args, "--address", c.address)...)
			harness.Until(t, "a line", func() bool { return strings.Contains(p.all(), " me ") })
			lines := strings.Split(p.all(), "\r\n")
			if owner := strings.Index(lines[0], "OWNER"); !strings.HasPrefix(lines[0], "TIME ") || owner != strings.Index(lines[1], "me ") {
				t.Errorf("%q", lines)
			}
			p.press("\x03")
			_ = harness.Await(t, "end", p.ended)
			h := startHeld(t, c.address, args...)
			h.printed("a change", func(text string) bool { return strings.Contains(text, " me ") })
			if strings.Contains(h.stdout.String(), "TIME") {
				t.Errorf("%q", &h.stdout)
			}
		})
	}
}
