// Command locket is the lock service, and the command line to it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := newCommand()
	command.SetArgs(dropIn(os.Args[1:]))
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "locket:", err)
		os.Exit(1)
	}
}

// dropIn turns `locket -config F`, the command line of Cloud Foundry's Locket, into
// `locket server --config F`.
func dropIn(args []string) []string {
	if len(args) > 0 && (args[0] == "-config" || args[0] == "--config") {
		return append([]string{"server", "--config"}, args[1:]...)
	}
	return args
}
