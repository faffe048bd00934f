package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
)

func newRenewCommand() *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "renew ID",
		Short: "Renew an active claim",
		Example: `  locket renew 06hn3v5k8m --ttl 5m
  locket renew 06hn3v5k8m --ttl 5m -o json`,
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "the claim's new TTL, from now on (required)")
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, args []string) (show.View, error) {
		if !cmd.Flag("ttl").Changed {
			return nil, exit.Usagef("--ttl is required: the claim's new TTL, from now on")
		}
		return updateClaim(cmd, c, &models.UpdateClaimRequest{Id: args[0], Ttl: proto.Float64(ttl.Seconds())})
	})
}

func newRevokeCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke somebody else's claim",
		Long: `Revoke a claim, active or waiting. Its status becomes revoked, and its history keeps the reason. A holder learns of it
at once (over HTTP with its next renewal), but needs time to stop: protect what matters with the fencing token. To end a
claim of your own, use "locket release --id ID".`,
		Example: `  locket revoke 06hn3v5k8m --reason "host a7 is gone, ticket 4711"`,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, for the claim's history")
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, args []string) (show.View, error) {
		return updateClaim(cmd, c, &models.UpdateClaimRequest{Id: args[0], Status: models.Status_STATUS_REVOKED, Reason: reason})
	})
}

func updateClaim(cmd *cobra.Command, c *connect.Connection, req *models.UpdateClaimRequest) (_ show.View, err error) {
	if req.Id, err = wholeID(cmd.Context(), c, req.GetId()); err != nil {
		return nil, err
	}
	ctx, cancel := c.Request(cmd.Context())
	defer cancel()
	updated, err := c.UpdateClaim(ctx, req)
	if err != nil {
		return nil, err
	}
	return changedClaim(updated), nil
}
