package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// Variables that have no effect on any command are found, with suggestions; variables that a command reads, or that Kubernetes sets, are
// not.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"LOCKET_DATABSE=mysql:x":       "LOCKET_DATABSE (did you mean LOCKET_DATABASE?)",
		"LOCKET_ADDR=a:1":              "LOCKET_ADDR (did you mean LOCKET_ADDRESS?)",
		"LOCKET_GRPC_PORT=8891":        "LOCKET_GRPC_PORT",
		"LOCKET_TTL=5m":                "LOCKET_TTL (did you mean LOCKET_URL?)", // a flag, and no variable
		"LOCKET_OUTPUT=json":           "LOCKET_OUTPUT",
		"LOCKET_LOG_LEVL=debug":        "LOCKET_LOG_LEVL (did you mean LOCKET_LOG_LEVEL?)",
		"LOCKET_TLS=x":                 "LOCKET_TLS (did you mean LOCKET_TLS_CA or LOCKET_TLS_CERT or LOCKET_TLS_CLIENT_CA or LOCKET_TLS_CRL or LOCKET_TLS_KEY or LOCKET_TLS_MIN_VERSION?)",
		"LOCKET_DATABSE=":              "",
		"LOCKETS=x":                    "",
		"LOCKET_DATABASE=mysql:x":      "",
		"LOCKET_DATABASE_PASSWORD=x":   "",
		"LOCKET_CONFIG=x":              "",
		"LOCKET_QUARANTINE=5m":         "", // of locket restore
		"LOCKET_CONTEXT=x":             "",
		"LOCKET_URL=x":                 "", // of locket keychain
		"LOCKET_RUNS=x":                "",
		"LOCKET_SERVICE_HOST=10.0.0.1": "", "LOCKET_SERVICE_PORT=8891": "", "LOCKET_SERVICE_PORT_GRPC=8891": "", "LOCKET_PORT=tcp://10.0.0.1:8891": "",
		"LOCKET_PORT_8891_TCP=tcp://10.0.0.1:8891": "", "LOCKET_PORT_8891_TCP_ADDR=10.0.0.1": "", "LOCKET_PORT_8891_TCP_PORT=8891": "", "LOCKET_PORT_8891_TCP_PROTO=tcp": "",
		"LOCKET_OPS_SERVICE_HOST=10.0.0.1": "", "LOCKET_OPS_PORT=tcp://10.0.0.1:1": "", "LOCKET_OPS_PORT_1_TCP=tcp://10.0.0.1:1": "",
	} {
		if got := strings.Join(unknownVariables(newCommand(), []string{"PATH=/", variable}), "|"); got != want {
			t.Errorf("%s: %q, want %q", variable, got, want)
		}
	}
}

// All variables in the documents are known.
func TestVariablesOfDocuments(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../docs/*.md")
	harness.Must(t, err)
	known, found := variablesOf(newCommand()), 0
	for _, file := range append(files, "../../../README.md") {
		text, err := os.ReadFile(file)
		harness.Must(t, err)
		for _, name := range regexp.MustCompile(`LOCKET_[A-Z_]*[A-Z]`).FindAllString(string(text), -1) {
			if found++; !slices.Contains(known, name) && name != "LOCKET_DATABSE" && !strings.HasPrefix(name, "LOCKET_TEST_") { // the one is an example of a mistake
				t.Errorf("%s: %s has no effect", file, name)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d variables are found", found)
	}
}

// A client command says in one line that a variable has no effect, and goes on; a command that reads no variables, and completion, do not.
func TestWarnsOfVariables(t *testing.T) {
	c := newCLI(t)
	t.Setenv("LOCKET_TIMEUOT", "1s\x1b[2J")
	if stdout, stderr, status := c.try("locks", "-o", "json"); status != exit.OK || stdout != "[]\n" ||
		stderr != "locket: variable of the environment without effect: LOCKET_TIMEUOT (did you mean LOCKET_TIMEOUT?)\n" {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	for _, args := range [][]string{{"version"}, {"locks", "--help"}, {"__complete", "release", "--address", c.address, ""}} {
		if _, stderr, _ := inProcess(t, args...); strings.Contains(stderr, "LOCKET_TIMEUOT") {
			t.Errorf("%q: %s", args, stderr)
		}
	}
}
