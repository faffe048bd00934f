package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// The status describes the service to an administrator, and sets the exit status.
func TestStatus(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		harness.Must(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	boss, bossHash := auth.NewCredential()
	user, userHash := auth.NewCredential()
	credentials := write("credentials.yaml", fmt.Sprintf("credentials:\n  - {name: boss, hash: %q}\n  - {name: user, hash: %q}\n", bossHash, userHash))
	const good = "rules:\n  - {identity: \"credential:boss\", may: [administer], resource_prefix: \"\"}\n"
	rules := write("rules.yaml", good)
	server := fixtures.StartLocket(t, harness.OneServer(t), "--auth-credentials", credentials, "--auth-rules", rules)
	status := func(credential string, args ...string) (string, string, int) {
		return inProcess(t, append([]string{"status", "--address", server.Address(), "--context-file", os.DevNull, "--credential-file", write("shown", credential)}, args...)...)
	}
	stdout, stderr, code := status(boss)
	if code != exit.OK || stderr != "" || !strings.HasPrefix(stdout, "ok\ndatabase    "+harness.EngineEmbedded+" ") || !strings.Contains(stdout, "\nlease time  ") || !strings.Contains(stdout, " idle, ") || !strings.Contains(stdout, "\nSERVER ") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	for line := range strings.Lines(stdout) {
		if len(line) > 81 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	stdout, _, code = status(boss, "-o", "json")
	var answer struct {
		Problems []string
		Servers  []struct{ Name, Version string }
		Database struct{ Engine string }
	}
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || code != exit.OK || answer.Problems == nil || len(answer.Servers) != 1 || answer.Servers[0].Version == "" || answer.Database.Engine != harness.EngineEmbedded {
		t.Errorf("%d %s", code, stdout)
	}
	if name, _, _ := status(boss, "-o", "name"); name != answer.Servers[0].Name+"\n" {
		t.Error(name)
	}
	if stdout, stderr, code := status(user); code != exit.Denied || stdout != "" || !strings.Contains(stderr, "administer") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	write("rules.yaml", "rules: [")
	harness.Eventually(t, func() error {
		stdout, stderr, code := status(boss)
		if code != exit.Degraded || !strings.Contains(stdout, "\ndatabase ") || !strings.HasPrefix(stdout, "degraded: --auth-rules") || stderr != "" {
			return fmt.Errorf("%d %s %s", code, stdout, stderr)
		}
		return nil
	})
	write("rules.yaml", good)
	harness.Eventually(t, func() error {
		if _, stderr, code := status(boss); code != exit.OK || stderr != "" {
			return fmt.Errorf("%d %s", code, stderr)
		}
		return nil
	})
	complains(t, exit.Failure, []string{"status", "--address", "127.0.0.1:1,127.0.0.1:2", "--context-file", os.DevNull}, "no connection to 127.0.0.1:1")
	complains(t, exit.Failure, []string{"status", "--address", "127.0.0.1:1", "--context-file", os.DevNull}, "no connection to 127.0.0.1:1")
	complains(t, exit.Usage, []string{"status", "surplus"}, "surplus")
}

// Each server is asked: one that does not answer is something wrong.
func TestStatusOfSeveral(t *testing.T) {
	t.Parallel()
	a, b := fixtures.StartLocket(t, harness.OneServer(t)), fixtures.StartLocket(t, harness.OneServer(t))
	status := func(addresses ...string) (string, string, int) {
		return inProcess(t, "status", "-o", "name", "--address", strings.Join(addresses, ","), "--context-file", os.DevNull)
	}
	if names, stderr, code := status(a.Address(), b.Address()); code != exit.OK || strings.Count(names, "\n") != 2 {
		t.Errorf("%d %s %s", code, names, stderr)
	}
	names, stderr, code := status("127.0.0.1:1", a.Address(), a.Address())
	if code != exit.Degraded || strings.Count(names, "\n") != 1 || !strings.Contains(stderr, "degraded: no connection to 127.0.0.1:1: ") {
		t.Errorf("%d %s %s", code, names, stderr)
	}
}
