package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/program/cli/exit"
)

// What other programs call a command is no command here, and leads to one.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	var names []string
	for _, cmd := range newCommand().Commands() {
		names = append(names, cmd.Name())
	}
	for name, commands := range elsewhere {
		if slices.Contains(names, name) {
			t.Errorf("%s is a command", name)
		}
		for _, command := range commands {
			if !slices.Contains(names, command) {
				t.Errorf("%s leads to %s, which is no command", name, command)
			}
		}
		complains(t, exit.Usage, []string{name, "x"}, "did you mean "+strings.Join(commands, " or ")+"?")
		complains(t, exit.Usage, []string{"help", name}, "did you mean "+strings.Join(commands, " or ")+"?")
	}
}

// A word that is spelled nearly as a command leads to it, also below another command.
func TestNearMisses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ line, want string }{
		{"lokc x", "lock"},
		{"relase x", "release"},
		{"reelase x", "release"},
		{"clam x", "claim"},
		{"claimss", "claims"},
		{"Unlock x", "release"},
		{"resorce x", "resource"},
		{"sesions", "sessions"},
		{"revok x", "revoke"},
		{"who", "whoami"},
		{"servr", "server"},
		{"credential nwe x", "new"},
		{"rules chek x", "check"},
		{"context lst", "list"},
		{"unlock x --owner me", "release"},
		{"lokc x --ttl 5m", "lock"},
		{"rules chek x --credentials y", "check"},
	} {
		complains(t, exit.Usage, strings.Fields(test.line), "did you mean ", test.want)
	}
}

// Every flag that is a duration takes a number of seconds, and says so in the help.
func TestDurationFlags(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"lock k --owner me --ttl soon", "claim k --wait 1m5", "get id --wait 1e9", "locks --timeout x", "claims --minimum-ttl 5q", "credential new x --ttl 1y", "server --shutdown-timeout ''"} {
		args := strings.Fields(strings.ReplaceAll(line, "''", ""))
		if strings.HasSuffix(line, "''") {
			args = append(args, "")
		}
		flag := args[slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--") && arg != "--owner" })]
		complains(t, exit.Usage, args, flag, "a number of seconds, or with units as in 90s, 5m, 1h30m, 7d")
	}
}
