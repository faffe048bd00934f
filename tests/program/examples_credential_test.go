package program_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/tests/harness"
)

// TestExamplesWithCredentials: at a server with authentication each example sends the credential of
// LOCKET_CREDENTIAL_FILE, and is refused without one.
func TestExamplesWithCredentials(t *testing.T) {
	t.Parallel()
	stubs, folder := pythonStubs(t), t.TempDir()
	credential, hash := auth.NewCredential()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		harness.Must(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	credentials := write("credentials.yaml", fmt.Sprintf("credentials:\n  - {name: me, hash: %q}\n", hash))
	server := fixtures.StartLocket(t, harness.Embedded(t), "--auth-credentials", credentials)
	env := append(fixtures.CleanEnv(), "no_proxy=127.0.0.1", "PYTHONPATH="+stubs, "PYTHONDONTWRITEBYTECODE=1")
	url := "http://" + server.HTTPAddress()
	examples := map[string][]string{
		"claim.py":         {python, "../../examples/python/claim.py", url, "jobs/a", "15", "true"},
		"claim.mjs":        {"node", "../../examples/javascript/claim.mjs", url, "b", "15", "true"},
		"lock.py":          {python, "../../examples/python/lock.py", server.Address(), "c"},
		"session.py":       {python, "../../examples/python/session.py", server.Address(), "d", "true"},
		"resource_lock.py": {python, "../../examples/python/resource_lock.py", url, "lock", "me", "e", "write"},
	}
	run := func(name string, env []string) (string, error) {
		program := examples[name]
		cmd := exec.Command(program[0], program[1:]...)
		cmd.Env = env
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	withCredential := append(env[:len(env):len(env)], "LOCKET_CREDENTIAL_FILE="+write("credential", credential+"\n"))
	out, _ := lines(t, withCredential[len(fixtures.CleanEnv()):], python, "../../examples/python/watch.py", url, "jobs/")
	if line := <-out; line != "these were all; changes follow" {
		t.Fatalf("the watch says %q of a server that has nothing", line)
	}
	for name := range examples {
		if text, err := run(name, env); err == nil {
			t.Errorf("%s without a credential: %s", name, text)
		}
		if text, err := run(name, withCredential); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	if line := <-out; !strings.HasPrefix(line, "jobs/a ") {
		t.Errorf("the watch says %q", line)
	}
}
