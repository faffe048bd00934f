package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newRenewCommand() *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "renew ID",
		Short: "Renew an active claim",
		Example: `  locket renew 06hn3v5k8m --ttl 5m
  locket renew 06hn3v5k8m --ttl 5m -o json`,
		Args: takes("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return updateClaim(cmd, &models.UpdateClaimRequest{Id: args[0], Ttl: proto.Float64(ttl.Seconds())})
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "the claim's new TTL, from now on (required)")
	return clientCommand(cmd, "ttl")
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
		Args:    takes("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return updateClaim(cmd, &models.UpdateClaimRequest{Id: args[0], Status: models.Status_STATUS_REVOKED, Reason: reason})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, for the claim's history")
	return clientCommand(cmd)
}

func updateClaim(cmd *cobra.Command, req *models.UpdateClaimRequest) error {
	return printAnswer(cmd, changedClaim, func(ctx context.Context, c *connect.Connection) (*models.Claim, error) {
		id, err := wholeID(cmd.Context(), c, req.GetId())
		if err != nil {
			return nil, err
		}
		req.Id = id
		return c.UpdateClaim(ctx, req)
	})
}

// changedClaim returns how a claim is shown that the caller has changed.
func changedClaim(c *models.Claim) show.View {
	if isHidden(c) {
		return hiddenOf(c)
	}
	return claimRow{viewClaim(c)}
}

// hiddenClaim is a claim that the caller may end, but not read.
type hiddenClaim struct {
	ID     string          `json:"id"`
	Status jsonview.Status `json:"status"`
}

func isHidden(c *models.Claim) bool { return c.GetResource() == "" }

func hiddenOf(c *models.Claim) hiddenClaim {
	return hiddenClaim{c.GetId(), jsonview.Status(c.GetStatus())}
}

func (v hiddenClaim) Names() []string { return []string{v.ID} }

func (v hiddenClaim) Text(look show.Look) string {
	t := show.NewTable(show.Fixed("STATUS"), show.Fixed("ID"))
	t.Add(show.StatusCell(v.Status), show.Plain(v.ID))
	return t.Text(look)
}
