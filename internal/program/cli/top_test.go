package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// output is the output of a running command.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Without a terminal it prints what it knows at each interval, in any format, or once.
func TestTopLines(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("claim", "k\x1b[2J", "--owner", "me\n", "--id", "a", "--ttl", "5m")
	c.queue("claim", "k\x1b[2J", "--owner", "you", "--id", "b")
	if out := c.run("top", "--once"); !strings.Contains(out, "  live\n1 resource, 1 wait\n") || !strings.Contains(out, "\n\"k\\x1b[2J\"  \"me\\n\"  ") || strings.Count(out, "\n") != 4 {
		t.Errorf("once: %q", out)
	}
	if out := c.run("top", "--once", "-o", "name", "--prefix", "other"); out != "" {
		t.Errorf("another prefix: %q", out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, complaint output
	ended := harness.Later(func() error {
		if status := Execute(ctx, []string{"top", "--address", c.address, "--context-file", os.DevNull, "--interval", "100ms", "-o", "json"}, &out, &complaint); status != exit.Interrupted {
			return fmt.Errorf("status %d, %s", status, complaint.String())
		}
		return nil
	})
	// prints waits for a picture. Later ones may differ, because rates cover the last seconds.
	prints := func(what string, is func(picture topJSON) bool) {
		t.Helper()
		harness.Until(t, what, func() bool {
			for line := range strings.Lines(out.String()) {
				var picture topJSON
				_ = json.Unmarshal([]byte(line), &picture)
				if is(picture) {
					return true
				}
			}
			return false
		})
	}
	prints("a picture", func(p topJSON) bool { return p.Live && p.Waiting == 1 })
	c.run("release", "--id", "a")
	prints("a change", func(p topJSON) bool {
		return p.Waiting == 0 && len(p.Resources) == 1 && p.Resources[0].Holder != nil && *p.Resources[0].Holder.Owner == "you" &&
			p.PerSecond.Grants > 0 && p.Resources[0].Changes > 0
	})
	c.try("claim", "k\x1b[2J", "--owner", "they", "--no-wait")
	prints("a refusal", func(p topJSON) bool { return p.PerSecond.Refusals > 0 })
	if text := out.String(); strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
	cancel()
	harness.Must(t, harness.Await(t, "end", ended))
	complains(t, exit.Failure, []string{"top", "--address", "127.0.0.1:1", "--context-file", os.DevNull}, "no connection to 127.0.0.1:1")
	for _, wrong := range [][]string{{"--sort", "age"}, {"--interval", "1ms"}, {"--limit", "0"}, {"--limit", "1001"}, {"surplus"}} {
		if _, stderr, status := c.try(append([]string{"top"}, wrong...)...); status != exit.Usage {
			t.Errorf("%q: status %d, %s", wrong, status, stderr)
		}
	}
}

// With more resources than it lists, the order by name begins with the first name, and the order by the longest wait has a note.
func TestTopLimit(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, name := range []string{"a", "b", "c"} {
		c.run("claim", name, "--id", name, "--ttl", "5m")
	}
	c.queue("claim", "c", "--id", "waits")
	for order, want := range map[string]string{"name": "a\nb\n", "contended": "c\na\n"} {
		if out := c.run("top", "--once", "--limit", "2", "--sort", order, "-o", "name"); out != want {
			t.Errorf("by %s: %q, want %q", order, out, want)
		}
	}
	const note = "at least 2 resources, 1 wait; the longest waits of the most contended resources\n"
	if out := c.run("top", "--once", "--limit", "2", "--sort", "oldest"); !strings.Contains(out, note) {
		t.Errorf("by the longest wait: %q", out)
	}
	if out := c.run("top", "--once", "--limit", "3", "--sort", "oldest"); !strings.Contains(out, "\n3 resources, 1 wait\n") {
		t.Errorf("all by the longest wait: %q", out)
	}
}
