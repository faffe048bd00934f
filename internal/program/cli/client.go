package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/show"
)

// clientCommand completes a command that talks to servers: it adds the flags that say where
// they are and how to print, and the check that the required flags are given.
func clientCommand(cmd *cobra.Command, required ...string) *cobra.Command {
	cmd.ValidArgsFunction = argumentsOfUse(cmd.Use)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range required {
			if flag := cmd.Flag(name); !flag.Changed {
				return exit.Usagef("--%s is required: %s", name, strings.TrimSuffix(flag.Usage, " (required)"))
			}
		}
		return run(cmd, args)
	}
	show.AddOutput(cmd)
	connect.AddFlags(cmd)
	return cmd
}

// takes has a command take these arguments.
func takes(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing", names[len(args)])
		case len(args) > len(names):
			return fmt.Errorf("%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// given returns the value of a flag, nil if it was not given.
func given[T any](cmd *cobra.Command, flag string, value T) *T {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return &value
}

// printAnswer prints the answer to a request as a view.
func printAnswer[A any, V show.View](cmd *cobra.Command, of func(A) V, ask func(ctx context.Context, c *connect.Connection) (A, error)) error {
	return connect.With(cmd, func(ctx context.Context, c *connect.Connection) error {
		answer, err := ask(ctx, c)
		if err != nil {
			return err
		}
		return show.Print(cmd, of(answer))
	})
}
