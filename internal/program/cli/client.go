package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/show"
)

// clientCommand completes a command that asks servers. The view that run returns is printed, unless it is nil; then the
// command ends with the error. The context is for one request.
func clientCommand(cmd *cobra.Command, run func(ctx context.Context, c *connect.Connection, args []string) (show.View, error)) *cobra.Command {
	cmd.RunE = printing(func(cmd *cobra.Command, args []string) (view show.View, err error) {
		err = connect.With(cmd, func(ctx context.Context, c *connect.Connection) (err error) {
			view, err = run(ctx, c, args)
			return err
		})
		return view, err
	})
	return withConnection(cmd)
}

// withConnection adds the flags that say where the servers are, and how to print, to a command that can be run.
func withConnection(cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgsFunction = completeArguments(argumentNames(cmd))
	show.AddOutput(cmd)
	connect.AddFlags(cmd)
	return cmd
}

// printing returns the RunE of a command that prints the view of run, unless it is nil, and ends with run's error.
func printing(run func(cmd *cobra.Command, args []string) (show.View, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if _, err := show.FormatOf(cmd); err != nil { // what cannot be printed is not done
			return err
		}
		view, err := run(cmd, args)
		if view != nil {
			if failed := show.Print(cmd, view); failed != nil {
				return failed
			}
		}
		return err
	}
}

// takes has a command take these arguments. One in brackets may be left out.
func takes(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
			return fmt.Errorf("%s is missing", names[len(args)])
		case len(args) > len(names):
			return fmt.Errorf("%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// argumentNames returns the names of the arguments in the usage of a command, which stand before its flags.
func argumentNames(cmd *cobra.Command) []string {
	words := strings.Fields(cmd.Use)[1:]
	if flags := slices.IndexFunc(words, func(word string) bool { return word == "[flags]" || word[0] == '-' }); flags >= 0 {
		return words[:flags]
	}
	return words
}

// given returns the value of a flag, nil if it was not given.
func given[T any](cmd *cobra.Command, flag string, value T) *T {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return &value
}

// parseFile reads and parses a file. Errors call it what.
func parseFile[T any](what, file string, parse func(text []byte) (T, error)) (parsed T, err error) {
	text, err := follow.Read(what, file)
	if err != nil {
		return parsed, exit.With(exit.Usage, err)
	}
	if parsed, err = parse(text); err != nil {
		return parsed, fmt.Errorf("%s: %w", file, err)
	}
	return parsed, nil
}
