package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/show"
)

func newSessionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions: how much they hold and wait for, and their servers",
		Long: `List the sessions: how many resources each holds and waits for, the server that it is attached to, and, for a session
without a connection, when it ends unless it is resumed. If the server authenticates its callers, you see your own
sessions, or all of them if you may administer all resources.`,
		Example: `  locket sessions
  locket sessions -o json
  locket sessions -o name`,
		Args: takes(),
	}
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, _ []string) (show.View, error) {
		sessions, err := listSessions(cmd.Context(), c)
		if err != nil {
			return nil, err
		}
		return listOr(cmd, sessions, "no session is open")
	})
}
