// Command locket is the lock service, and the command line to it.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// execute runs a command line and returns the status to end with.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	command := newCommand()
	command.SetArgs(dropIn(args))
	command.SetOut(stdout)
	command.SetErr(stderr)
	return finish(ctx, stderr, command.ExecuteContext(ctx))
}

// dropIn turns `locket -config F`, the command line of Cloud Foundry's Locket, into
// `locket server --config F`.
func dropIn(args []string) []string {
	if len(args) > 0 && (args[0] == "-config" || args[0] == "--config") {
		return append([]string{"server", "--config"}, args[1:]...)
	}
	return args
}
