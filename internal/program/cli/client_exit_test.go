package cli

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// The statuses of the real program.
func TestExitStatuses(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	env := []string{"LOCKET_ADDRESS=" + server.Address(), "LOCKET_CONTEXT_FILE=" + os.DevNull}
	for _, test := range []struct {
		args []string
		want int
	}{
		{[]string{"lock", "k", "--owner", "me", "--ttl", "5m"}, exit.OK},
		{[]string{"lock", "k", "--owner", "you"}, exit.Held},
		{[]string{"release", "k", "--owner", "you"}, exit.Held},
		{[]string{"claim", "k", "--wait", "10ms"}, exit.Held},
		{[]string{"claim", "k", "--id", "a"}, exit.Held}, // it waits: locket claim k && work must not work
		{[]string{"claim", "k", "--id", "a"}, exit.Held}, // and it stays
		{[]string{"claim", "free", "--id", "b"}, exit.OK},
		{[]string{"claim", "k", "--no-wait", "--id", "c"}, exit.Held},
		{[]string{"get", "c"}, exit.NotFound}, // no claim was made
		{[]string{"claim", "free", "--no-wait", "--wait", "1s"}, exit.Usage},
		{[]string{"lock", "free"}, exit.Usage},
		{[]string{"claim", "free", "--ttl", "0s"}, exit.Usage},
		{[]string{"get", "a", "--wait", "10ms"}, exit.Held},
		{[]string{"renew", "a", "--ttl", "1m"}, exit.Failure},
		{[]string{"get", "nosuch"}, exit.NotFound},
		{[]string{"fetch", "nobody"}, exit.NotFound},
		{[]string{"fetch"}, exit.Usage},
		{[]string{"fetch", "k", "--nosuch"}, exit.Usage},
		{[]string{"nosuch"}, exit.Usage},
		{[]string{"lock", "", "--owner", "me"}, exit.Usage},
		{[]string{"lock", "\xff", "--owner", "me"}, exit.Usage},
		{[]string{"claim", "free", "--id", "\xff"}, exit.Usage},
		{[]string{"watch", "--prefix", "\xff"}, exit.Usage},
		{[]string{"locks", "--prefix", "\xff"}, exit.Usage},
		{[]string{"elect", "\xff"}, exit.Usage},
		{[]string{"elect", "\xff", "--observe"}, exit.Usage},
		{[]string{"elect", strings.Repeat("k", 1025)}, exit.Usage},
		{[]string{"elect", "free", "--value", "\xff"}, exit.Usage},
		{[]string{"claim", "free", "--id", ""}, exit.Usage},
		{[]string{"fetch", "k", "--address", "127.0.0.1:1"}, exit.Failure},
	} {
		if stdout, stderr, code := harness.RunLocket(t, env, test.args...); code != test.want {
			t.Errorf("locket %q: exit status %d, want %d; %q, %q", test.args, code, test.want, stdout, stderr)
		}
	}
}

// An answer that cannot be written is an error.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	harness.Must(t, err)
	defer full.Close()
	var complaint strings.Builder
	cmd := exec.CommandContext(t.Context(), fixtures.LocketProgram(t), "version")
	cmd.Stdout, cmd.Stderr = full, &complaint
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != exit.Failure || !strings.Contains(complaint.String(), "could not be printed") {
		t.Errorf("status %d, %q", code, complaint.String())
	}
}

// A wait ends when the turn comes, also when the server is another by then.
func TestClaimWaits(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
	c.run("claim", "k", "--id", "first", "--ttl", "5m")
	turn := harness.Later(func() error {
		stdout, stderr, status := c.try("claim", "k", "--id", "second", "--wait", "1m", "-o", "name")
		if status != exit.OK || stdout != "second\n" {
			return fmt.Errorf("status %d, %q, %q", status, stdout, stderr)
		}
		return nil
	})
	harness.Eventually(t, func() error {
		if queue := c.run("resource", "k"); !strings.Contains(queue, "1 wait") {
			return fmt.Errorf("%s", queue)
		}
		return nil
	})
	server.Kill()
	harness.Must(t, server.Start())
	c.run("release", "--id", "first")
	harness.Must(t, <-turn)
	c.run("get", "second", "--wait", "1m")
}

// A claim without --owner has a default owner.
func TestDefaultOwner(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("claim", "k")
	host, err := os.Hostname()
	harness.Must(t, err)
	c.run("claim", "same", "--id", "a")
	c.run("claim", "same", "--id", "a") // the same claim again
	for name, want := range map[string]string{"k": fmt.Sprintf("%s/%d/", host, os.Getpid()), "same": host + "/a\t"} {
		if held := c.run("fetch", name); !strings.HasPrefix(held, want) {
			t.Errorf("%q, want %s...", held, want)
		}
	}
}

// All pages of a long list are one list.
func TestLongList(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
	client := server.Client(t)
	const claims = maxPage + 5
	for i := range claims {
		harness.Create(t, client, fmt.Sprint(i), fmt.Sprint(i), time.Hour)
	}
	for limit, want := range map[string]int{"0": claims, "1002": 1002, "7": 7, "2000": claims} {
		stdout, stderr, _ := c.try("claims", "-o", "name", "--limit", limit)
		if got := strings.Count(stdout, "\n"); got != want || (stderr == "") != (want == claims) {
			t.Errorf("--limit %s: %d, want %d; %s", limit, got, want, stderr)
		}
		stdout, stderr, _ = c.try("resources", "-o", "name", "--limit", limit)
		if got := strings.Count(stdout, "\n"); got != want || (stderr == "") != (want == claims) {
			t.Errorf("resources --limit %s: %d, want %d; %s", limit, got, want, stderr)
		}
		stdout, stderr, _ = c.try("claims", "-o", "name", "--sort", "resource", "--limit", limit)
		if got := strings.Count(stdout, "\n"); got != want || (stderr == "") != (want == claims) || !strings.HasPrefix(stdout, "0\n1\n10\n100\n1000\n1001\n1002\n") {
			t.Errorf("--sort resource --limit %s: %d, want %d; %s", limit, got, want, stderr)
		}
	}
}
