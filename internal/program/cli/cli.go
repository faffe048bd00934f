// Package cli is the command line: the cobra commands, their output, and their exit statuses.
//
// A command has a file of its own, with its flags and what it shows. Longer work is done in packages below: settings finds the values of
// flags, connect reaches the servers, hold takes and keeps locks and claims, run supervises the command of `locket run`, pipe serves the
// client of `locket keychain`, exit has the statuses, show prints answers, printable makes text harmless. They never import this package.
// `locket server` is package server with flags.
//
// Callers may rely on Execute alone. Scripts may rely on the statuses of package exit, on -o json,
// yaml and name (package jsonview), and on nothing that is printed for people.
package cli

import (
	"context"
	"io"
	"strings"

	"github.com/locket-service/locket/internal/program/cli/exit"
)

// Execute runs a command line, without the name of the program, and returns the status to end with. The end of ctx interrupts the command.
func Execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	command := newCommand()
	command.SetArgs(append([]string{}, dropIn(args)...)) // cobra reads os.Args instead of nil
	command.SetOut(stdout)
	command.SetErr(stderr)
	executed, err := command.ExecuteContextC(ctx)
	return exit.Finish(ctx, stderr, withHint(executed, err))
}

// dropIn turns `locket -config=F`, the command line of Cloud Foundry's Locket, into
// `locket server --config=F`. Go's flags may have one dash or two, and = or a blank.
func dropIn(args []string) []string {
	if len(args) == 0 {
		return args
	}
	name, value, given := strings.Cut(strings.TrimPrefix(args[0], "-"), "=")
	if name != "config" && name != "-config" || !strings.HasPrefix(args[0], "-") {
		return args
	}
	config := []string{"server", "--config"}
	if given {
		config = []string{"server", "--config=" + value}
	}
	return append(config, args[1:]...)
}
