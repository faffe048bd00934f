package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/program/cli/exit"
)

// An empty list is no table. Standard error names the reason, and scripts get nothing.
func TestEmptyLists(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for line, want := range map[string]string{
		"resources":               "locket: no resource is held or waited for\n",
		"resources --prefix x/":   "locket: no resource below x/ is held or waited for\n",
		"claims":                  "locket: no claim holds or waits; --all also lists ended claims\n",
		"claims --all --owner me": "locket: no claim passes the filters\n",
		"locks":                   "locket: no lock is held\n",
		"locks -o wide":           "locket: no lock is held\n",
		"presences":               "locket: no presence is announced\n",
		"sessions":                "locket: no session is open\n",
		"sessions -o name":        "",
	} {
		if stdout, stderr, status := c.try(strings.Fields(line)...); stdout != "" || stderr != want || status != exit.OK {
			t.Errorf("%s: status %d, %q, %q, want %q", line, status, stdout, stderr, want)
		}
	}
	if _, says, _ := inProcess(t, "context", "list", "--context-file", os.DevNull); says != "locket: there is no context; to create one: locket context set NAME --address HOST:8891\n" {
		t.Errorf("contexts: %q", says)
	}
	if text := c.run("claims", "-o", "json"); text != "[]\n" {
		t.Errorf("JSON: %q", text)
	}
}

// Answers name the next step: the place of a claim that waits, the holder that is in the way, the time that is left.
func TestAnswersNameWhatMatters(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("claim", "shared", "--shared", "--owner", "reader", "--ttl", "5m")
	for line, want := range map[string]string{
		"claim shared --owner writer --no-wait --ttl 5m": `"shared" is held by "reader" since 2`,
		"claim shared --owner writer --ttl 5m":           "the claim waits at place 1, and stays in the queue; ",
	} {
		if _, stderr, status := c.try(strings.Fields(line)...); status != exit.Held || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %s", line, status, stderr)
		}
	}
	if text := c.run("resource", "shared"); !strings.Contains(text, "OWNER   SINCE    TTL    BEHIND ") || !strings.Contains(text, "reader  ") || !strings.Contains(text, " 4m5") {
		t.Errorf("no time left: %s", text)
	}
	if text := c.run("explain", "shared"); !regexp.MustCompile(`since 20\S+T\d\d:\d\d:\d\dZ \(\ds ago\)`).MatchString(text) {
		t.Errorf("times in whole seconds: %s", text)
	}
	if text := c.run("top", "--once"); strings.Contains(text, "per second") || strings.Contains(text, "CHANGES/S") || !strings.Contains(text, "OLDEST WAIT") {
		t.Errorf("one list has no rates: %s", text)
	}
}
