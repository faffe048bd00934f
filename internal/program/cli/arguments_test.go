package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/exit"
)

// TestTooManyArguments: every command that takes a fixed number of arguments names the first one that is too many.
func TestTooManyArguments(t *testing.T) {
	t.Parallel()
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			check(below)
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		if cmd.HasSubCommands() || len(path) == 0 || path[0] == "completion" || path[0] == "help" || strings.Contains(cmd.Use, "...") && cmd.Name() != "reset" {
			return
		}
		arguments := 0
		for _, word := range strings.Fields(cmd.Use)[1:] {
			if word == strings.ToUpper(word) && !strings.HasPrefix(word, "--") && word != "|" {
				arguments++
			}
		}
		switch cmd.Name() {
		case "release": // NAME --owner OWNER, or --id ID
			arguments = 1
		case "reset":
			arguments = 0
		}
		complains(t, exit.Usage, slices.Concat(path, slices.Repeat([]string{"x"}, arguments), []string{"extra"}), `"extra" is one argument too many`)
	}
	check(newCommand())
}

// TestIgnoredFlags: a value that would have no effect is refused.
func TestIgnoredFlags(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	complains(t, exit.Usage, []string{"get", "x", "--wait", "-5m", "--address", "127.0.0.1:1"}, "--wait -5m0s: must be 0 or more")
	complains(t, exit.Usage, []string{"context", "set", "a", "--context", "b"}, "--context")
	complains(t, exit.Usage, []string{"keychain", "--log-level", "chatty"}, `--log-level "chatty": must be debug, info, warn or error`)
}

// TestCheckOfNothing: the help of a command is named where the command line is wrong, and not where a file or a database cannot be read,
// though check has the same status for both.
func TestCheckOfNothing(t *testing.T) {
	folder := t.TempDir()
	for _, args := range [][]string{{"check", folder + "/none"}, {"check", "--data", folder + "/none"}, {"check", "--database", "mysql:u@tcp(127.0.0.1:1)/x"}} {
		_, stderr, status := inProcess(t, args...)
		if status != checkFailed || !strings.HasPrefix(stderr, "locket: ") || strings.Contains(stderr, "--help") {
			t.Errorf("locket %q: status %d, %s", args, status, stderr)
		}
	}
	complains(t, exit.Usage, []string{"check", "--database", "x:"}, `see "locket check --help"`)
	complains(t, exit.Usage, []string{"check", "a", "b"}, `see "locket check --help"`)
}
