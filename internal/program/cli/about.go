package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/show"
)

func newManCommand() *cobra.Command {
	var folder string
	cmd := &cobra.Command{
		Use:   "man",
		Short: "Write the man pages into a folder",
		Example: `  locket man --dir /usr/local/share/man/man1
  locket man --dir ./man`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if folder == "" {
				return exit.Usagef("--dir is required: the folder to write the pages to")
			}
			return writeManPages(cmd.Root(), folder)
		},
	}
	cmd.Flags().StringVar(&folder, "dir", "", "the folder, created if it does not exist (required)")
	return cmd
}

// writeManPages writes a page for each command: locket-lock.1. Their date is the commit's, so that the same program always writes the same.
func writeManPages(root *cobra.Command, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	header := &doc.GenManHeader{Source: "Locket", Manual: "Locket"}
	if date := versionOf().Date; date != nil {
		if at, err := time.Parse(time.RFC3339, *date); err == nil {
			header.Date = &at
		}
	}
	root.DisableAutoGenTag = true
	describeForManual(root)
	return doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{Header: header, Path: folder, CommandSeparator: "-"})
}

// describeForManual completes the descriptions of a command and of those below it. The page locket-options alone lists the flags of a connection.
func describeForManual(cmd *cobra.Command) {
	cmd.Long = describe(cmd)
	if note := durationNote(cmd); note != "" {
		cmd.Long += "\n" + note + "\n"
	}
	if hasOptions(cmd) {
		cmd.Long += "\nlocket-options(1) lists the flags that say where the servers are.\n"
		connectFlags(cmd).VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
	}
	for _, below := range cmd.Commands() {
		describeForManual(below)
	}
}

// newOptionsCommand returns the only command that lists the flags of a connection.
func newOptionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "options",
		Short: "List the connection flags of all commands: addresses, TLS, credentials",
		Long: `List the connection flags of all commands that call servers. Each is also an environment variable (--address:
LOCKET_ADDRESS) and a member of a context (see "locket context").`,
		Example: `  locket options`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprint(cmd.OutOrStdout(), connectFlags(cmd).FlagUsages())
		return err
	}
	connect.AddFlags(cmd)
	return cmd
}

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Example: `  locket version
  locket version -o json`,
		RunE: printing(func(*cobra.Command, []string) (show.View, error) { return versionOf(), nil }),
	}
	show.AddOutput(cmd)
	return cmd
}
