package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
)

// newOptionsCommand returns the only command that lists the flags of a connection.
func newOptionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "options",
		Short: "List the connection flags of all commands: addresses, TLS, credentials",
		Long: `List the connection flags of all commands that call servers. Each is also an environment variable (--address:
LOCKET_ADDRESS) and a member of a context (see "locket context").`,
		Example: `  locket options`,
		Args:    takes(),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprint(cmd.OutOrStdout(), connectFlags(cmd).FlagUsages())
		return err
	}
	connect.AddFlags(cmd)
	return cmd
}
