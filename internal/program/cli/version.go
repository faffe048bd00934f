package cli

import (
	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/show"
)

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Example: `  locket version
  locket version -o json`,
		Args: takes(),
		RunE: printing(func(*cobra.Command, []string) (show.View, error) { return versionOf(), nil }),
	}
	show.AddOutput(cmd)
	return cmd
}
