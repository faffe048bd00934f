package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/internal/program/cli/top"
	"github.com/locket-service/locket/internal/program/cli/tty"
)

func newTopCommand() *cobra.Command {
	var once bool
	var limit uint32
	var by string
	config := top.Config{}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live the most contended resources and their changes",
		Long: `Show the most contended resources (the holder, how many claims wait and for how long, changes per second), and the last
changes. On a terminal it is live until q or Ctrl-C; s changes the order. Without a terminal, or with -o, it prints a
table at each interval, and when it loses or regains the feed of changes.

It lists the --limit most contended resources, or with --sort name the first ones by name, and follows the changes; --sort
oldest orders the listed resources. Rates cover the last 10 seconds. Refused requests are counted by the server that
sends the changes. While no server can be reached it says so and since when, and it continues by itself.`,
		Example: `  locket top
  locket top --prefix deploy/ --sort busy
  locket top --once
  locket top --interval 10s -o json | tee top.log`,
	}
	cmd.Flags().StringVar(&config.Prefix, "prefix", "", "only resources with this prefix")
	cmd.Flags().StringVar(&by, "sort", top.OrderNames[0], "contended: most waiting claims; busy: most changes; oldest: longest wait; name")
	cmd.Flags().DurationVar(&config.Interval, "interval", time.Second, "the time between two updates")
	cmd.Flags().Uint32Var(&limit, "limit", 100, "how many resources, at most 1000")
	cmd.Flags().BoolVar(&once, "once", false, "print one table without rates, and exit")
	_ = cmd.RegisterFlagCompletionFunc("prefix", completeFlag(completeNames))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(top.OrderNames, cobra.ShellCompDirectiveNoFileComp))
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, _ []string) (show.View, error) {
		switch {
		case !slices.Contains(top.OrderNames, by):
			return nil, exit.Usagef("--sort %q: must be one of %s", by, strings.Join(top.OrderNames, ", "))
		case config.Interval < 100*time.Millisecond:
			return nil, exit.Usagef("--interval %s: must be at least 100ms", config.Interval)
		case limit < 1 || limit > maxPage:
			return nil, exit.Usagef("--limit %d: must be 1 to %d", limit, maxPage)
		}
		config.Order, config.Limit = top.Order(slices.Index(top.OrderNames, by)), int(limit)
		config.Client, config.Timeout, config.Explain = c.LocketClient, c.Timeout, c.Explain
		if !once {
			return nil, runTop(cmd, config)
		}
		s, err := top.Once(cmd.Context(), config)
		if err != nil {
			return nil, err
		}
		return topView{s}, nil
	})
}

func runTop(cmd *cobra.Command, config top.Config) (err error) {
	ctx := cmd.Context()
	switch file := screenOf(cmd); {
	case file != nil:
		err = top.Screen(ctx, config, os.Stdin, file, func(s top.Snapshot, width, height int) string {
			return topView{s}.screen(show.Look{Terminal: true, Color: show.WantsColor(), Width: width, Now: s.Time}, height)
		})
	default:
		err = topLines(cmd, config)
	}
	if errors.Is(err, context.Canceled) { // by a signal
		return exit.With(exit.Interrupted, errors.New("interrupted"))
	}
	return err
}

// screenOf returns the terminal to draw on, nil to print lines.
func screenOf(cmd *cobra.Command) *os.File {
	out := cmd.OutOrStdout()
	file, _ := out.(*os.File)
	if !tty.Rewrites(out) || cmd.Flag("output").Changed {
		return nil
	}
	return file
}

func topLines(cmd *cobra.Command, config top.Config) error {
	format, _ := show.FormatOf(cmd) // which has been looked at before
	look := show.LookOf(cmd.OutOrStdout())
	return top.Lines(cmd.Context(), config, func(s top.Snapshot) error {
		look.Now = s.Time
		if err := show.PrintLine(cmd.OutOrStdout(), topView{s}, format, look); err != nil {
			return err
		}
		if format.IsText() {
			_, err := io.WriteString(cmd.OutOrStdout(), "\n")
			return err
		}
		return nil
	})
}
