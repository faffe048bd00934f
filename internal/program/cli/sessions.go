package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
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
	}
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, _ []string) (show.View, error) {
		sessions, err := listSessions(cmd.Context(), c)
		if err != nil {
			return nil, err
		}
		return listOr(cmd, sessions, "no session is open")
	})
}

func newResetCommand() *cobra.Command {
	var (
		keep []string
		all  bool
	)
	cmd := &cobra.Command{
		Use:   "reset --keep ID... | --all",
		Short: "End sessions and all their claims",
		Long: `End all sessions but those with --keep, and their claims, and grant the next claim in each queue. The claims become
revoked. A client that is cut off may go on until its TTL has passed: protect what matters with the fencing token. A
reset that failed halfway can be repeated.`,
		Example: `  locket reset --keep ID1,ID2   # end all but these
  locket reset --all            # end all`,
	}
	cmd.Flags().StringSliceVar(&keep, "keep", nil, "the ids of the sessions to keep, separated by commas")
	cmd.Flags().BoolVar(&all, "all", false, "end all sessions")
	_ = cmd.RegisterFlagCompletionFunc("keep", completeFlag(completeSessions))
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, _ []string) (show.View, error) {
		if all == (len(keep) > 0) {
			return nil, exit.Usagef(`give the sessions to --keep, or --all to end them all`)
		}
		keep, err := wholeSessions(cmd.Context(), c, keep)
		if err != nil {
			return nil, err
		}
		ctx, cancel := c.Request(cmd.Context())
		defer cancel()
		response, err := c.ResetSessions(ctx, &models.ResetSessionsRequest{Keep: keep})
		if err != nil {
			return nil, err
		}
		return resetView{response.GetEnded()}, nil
	})
}

// resetView says how many sessions were ended.
type resetView struct {
	Ended uint32 `json:"ended"`
}

func (v resetView) Names() []string { return nil }

func (v resetView) Text(show.Look) string {
	if v.Ended == 1 {
		return "1 session was ended\n"
	}
	return fmt.Sprintf("%d sessions were ended\n", v.Ended)
}
