package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
)

func newGetCommand() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show a claim with its history",
		Long: `Show a claim with its history. With --wait the command ends when the claim is active (status 0), when it has ended (1),
or when the time is up (3).`,
		Example: `  locket get 06hn3v5k8m
  locket get 06hn3v5k8m --wait 5m
  locket get 06hn3v5k8m -o yaml`,
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait until the claim is active")
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, args []string) (show.View, error) {
		if wait < 0 {
			return nil, exit.Usagef("--wait %s: must be 0 or more", wait)
		}
		id, err := wholeID(cmd.Context(), c, args[0])
		if err != nil {
			return nil, err
		}
		ctx, cancel := c.Request(cmd.Context())
		defer cancel()
		claim, err := c.GetClaim(ctx, &models.GetClaimRequest{Id: id})
		if err != nil {
			return nil, err
		}
		if cmd.Flags().Changed("wait") {
			if claim, err = hold.Watch(cmd.Context(), c, cmd.ErrOrStderr(), claim, wait); err == nil {
				err = hold.Inactive(claim)
			}
		}
		return viewClaim(claim), err
	})
}
