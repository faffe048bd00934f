package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// printed waits until the output of a command passes a check.
func (h *held) printed(what string, is func(text string) bool) {
	h.t.Helper()
	harness.Eventually(h.t, func() error {
		if text := h.stdout.String(); !is(text) {
			return fmt.Errorf("%s: %q; %q", what, text, &h.stderr)
		}
		return nil
	})
}

// Those who campaign lead one after the other, with rising tokens, and whoever observes sees each.
func TestElect(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	start := func(args ...string) *held {
		return startHeld(t, c.address, append([]string{"elect", "scheduler"}, args...)...)
	}
	seen := start("--observe", "-o", "jsonpath=$.owner")
	table := start("--observe")
	seen.printed("nobody leads", func(text string) bool { return text == "null\n" })
	a := start("--owner", "a", "--value", "10.0.0.1")
	a.says(`"scheduler" is held, with token`)
	b := start("--owner", "b", "--", "sh", "-c", `echo "leads with $LOCKET_TOKEN"; read wait < /proc/self/fd/0; exit 7`)
	never := start("--owner", "never")
	harness.Eventually(t, func() error {
		if queue := c.run("resource", "scheduler"); !strings.Contains(queue, "is held by a (10.0.0.1), 2 wait") {
			return fmt.Errorf("%s", queue)
		}
		return nil
	})
	never.ends(syscall.SIGINT, exit.Interrupted, `interrupted before "scheduler" was held`)
	a.ends(syscall.SIGTERM, exit.OK, `"scheduler" is released`)
	b.ends(0, 7, "") // its standard input is empty
	if first, second := strings.TrimSpace(a.stdout.String()), strings.TrimPrefix(strings.TrimSpace(b.stdout.String()), "leads with "); len(first) != 16 || second <= first {
		t.Errorf("the token %q after %q", second, first)
	}
	lost := start("--owner", "lost")
	lost.says("is held")
	c.run("revoke", strings.TrimSpace(c.run("claims", "--resource", "scheduler", "-o", "name")))
	lost.ends(0, exit.Lost, `"scheduler" is lost`)
	seen.printed("who has led", func(text string) bool {
		leaders := strings.Join(strings.Fields(strings.ReplaceAll(text, "null", "")), " ")
		return leaders == "a b lost" && strings.HasSuffix(text, "lost\nnull\n")
	})
	seen.ends(syscall.SIGINT, exit.Interrupted, "interrupted")
	table.printed("the value", func(text string) bool {
		return strings.Contains(strings.Join(strings.Fields(text), " "), " a "+strings.TrimSpace(a.stdout.String())+" 10.0.0.1 ")
	})
	table.ends(syscall.SIGTERM, exit.Interrupted, "interrupted")
	if queue := c.run("resource", "scheduler"); !strings.Contains(queue, "is free") {
		t.Errorf("somebody still leads: %s", queue)
	}
}

// A leader ends in time while no server can be reached, however long the TTL is, and says that the leadership is not free yet.
func TestElectWithoutServer(t *testing.T) {
	t.Parallel()
	proxy := fixtures.NewProxy(t, newCLI(t).address)
	leader := startHeld(t, proxy.Addr(), "elect", "scheduler", "--ttl", "1h")
	leader.says("is held")
	proxy.Cut()
	leader.ends(syscall.SIGINT, exit.Failure, `no server can be reached to release "scheduler"; it ends by itself within `)
}

func TestElectRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ line, words string }{
		{"elect", "NAME is missing"},
		{"elect s --", "COMMAND is missing"},
		{"elect s t", `"t" is one argument too many`},
		{"elect s --ttl 0", "--ttl"},
		{"elect s --grace -1 -- true", "--grace"},
		{"elect s --grace 5", "--grace needs a COMMAND"},
		{"elect s --observe --owner me", "--observe"},
		{"elect s --observe -- true", "--observe"},
		{"elect s -o json -- true", "--output"},
		{"elect s -o xml", "--output"},
	} {
		complains(t, exit.Usage, strings.Fields(test.line), test.words)
	}
	complains(t, exit.Usage, []string{"elect", ""}, "NAME: must not be empty")
	complains(t, exit.Failure, []string{"elect", "s", "--address", "127.0.0.1:1", "--context-file", "/dev/null"}, "no connection to 127.0.0.1:1")
}
