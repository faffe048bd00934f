package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

func TestSessionsAndReset(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	open := func(name string) *harness.Session {
		s := harness.DialSession(t, harness.ClientAt(t, c.address))
		s.Open(name)
		s.KeepAlive()
		return s
	}
	a, b := open("a"), open("b")
	a.Lock("k", harness.Held)
	a.Lock("l", harness.Held)
	b.Lock("k", harness.Waiting)
	if out := c.run("sessions", "-o", "name"); out != a.ID+"\n"+b.ID+"\n" {
		t.Errorf("names: %q", out)
	}
	if lines := strings.Split(c.run("sessions", "-o", "wide"), "\n"); !strings.HasPrefix(lines[1], "a      2      0  ") || !strings.HasSuffix(lines[1], "  "+a.ID) || !strings.HasPrefix(lines[2], "b      0      1  ") || !strings.HasSuffix(lines[2], "  "+b.ID) {
		t.Errorf("the table: %q", lines)
	}
	var list []map[string]any
	harness.Must(t, json.Unmarshal([]byte(c.run("sessions", "-o", "json")), &list))
	if s := list[0]; s["id"] != a.ID || s["owner"] != "a" || s["ttl"] != 10.0 || s["holding"] != 2.0 || s["waiting"] != 0.0 || s["server"] == nil || s["ends_in"] != nil || s["created"] == nil {
		t.Errorf("in JSON: %v", list)
	}
	for _, wrong := range [][]string{{"reset"}, {"reset", "--all", "--keep", b.ID}, {"reset", "--keep", ""}} {
		if _, stderr, status := c.try(wrong...); status != exit.Usage || !strings.Contains(stderr, "--all") {
			t.Errorf("%q: status %d, %s", wrong, status, stderr)
		}
	}
	if _, stderr, status := c.try("reset", "--keep", "short"); status != exit.Usage && status != exit.Failure || !strings.Contains(stderr, "keep: must be ids of sessions") {
		t.Errorf("status %d, %s", status, stderr)
	}
	if out, _, _ := inProcess(t, "__complete", "reset", "--address", c.address, "--context-file", os.DevNull, "--keep", "session-b"); !strings.HasPrefix(out, b.ID+"\n") {
		t.Errorf("completed: %q", out)
	}
	if out := c.run("reset", "--keep", b.ID); out != "1 session was ended\n" {
		t.Errorf("reset: %q", out)
	}
	b.Hears("k", harness.Waiting, harness.Held)
	a.Ends(codes.NotFound, "SESSION_ENDED")
	if out := c.run("reset", "--all", "-o", "json"); out != "{\n  \"ended\": 1\n}\n" {
		t.Errorf("reset: %q", out)
	}
	b.Ends(codes.NotFound, "SESSION_ENDED")
}
