// Command locket is the lock service and its command line. Package cli implements it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/locket-service/locket/internal/program/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := cli.Execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}
