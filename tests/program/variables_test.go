package program_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// TestUnknownVariables: a server logs which variables of its environment look like Locket's and have no effect, and which may be meant; variables
// that Kubernetes sets for a Service named locket are ignored.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	server := fixtures.NewLocket(t, harness.Embedded(t))
	server.Env = []string{"LOCKET_DATABSE=mysql:locket@/locket", "LOCKET_PORT_8891_TCP=tcp://10.0.0.1:8891", "LOCKET_ADDRESS=127.0.0.1:8891"}
	harness.Must(t, server.Start())
	const want = "variables of the environment without effect"
	harness.Eventually(t, func() error {
		if !strings.Contains(server.Log(), want) {
			return errors.New("the log has no line for it")
		}
		return nil
	})
	for line := range strings.Lines(server.Log()) {
		if strings.Contains(line, want) && (!strings.Contains(line, "LOCKET_DATABSE (did you mean LOCKET_DATABASE?)") || strings.Contains(line, "TCP") || strings.Contains(line, "LOCKET_ADDRESS")) {
			t.Error(line)
		}
	}
}

// TestVariablesOfChildren: variables that commands set for their children are known there.
func TestVariablesOfChildren(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	program := fixtures.LocketProgram(t)
	env := []string{"LOCKET_ADDRESS=" + server.Address(), "LOCKET_CONTEXT_FILE=" + os.DevNull}
	changes, _ := lines(t, env, program, "watch", "watched", "-o", "json")
	var synced struct{ Cursor string }
	harness.Must(t, json.Unmarshal([]byte(awaitLine(t, changes, `"event":"synced"`)), &synced))
	harness.Create(t, server.Client(t), "watched", "id", time.Hour)
	for _, args := range [][]string{
		{"run", "locked", "--", program, "run", "inner", "--", program, "locks"},
		{"elect", "led", "--", program, "locks"},
		{"watch", "watched", "--cursor", synced.Cursor, "--exec", program + " locks && exit 7"},
	} {
		stdout, stderr, _ := harness.RunLocket(t, env, args...)
		if strings.Contains(stderr, "without effect") || !strings.Contains(stdout, "OWNER") {
			t.Errorf("%q: %q, %q", args, stdout, stderr)
		}
	}
}
