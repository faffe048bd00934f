package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
)

func newReleaseCommand() *cobra.Command {
	var (
		owner, id, reason string
		token             uint64
	)
	cmd := &cobra.Command{
		Use:   "release NAME --owner OWNER | --id ID",
		Short: "Release a lock, or end a claim",
		Long: `Release a lock by its name and owner, or end a claim by its id: an active claim is released, a waiting one withdrawn,
and an ended one does not change.`,
		Example: `  locket release nightly-report --owner me
  locket release nightly-report --owner me --token 1795283222123457  # this grant, and no later one
  locket release --id 06hn3v5k8m
  locket release --id 06hn3v5k8m --reason "no longer needed"`,
		Args: takes("[NAME]"), // unless --id is given
	}
	cmd.Flags().StringVar(&owner, "owner", "", "the lock's owner")
	cmd.Flags().Uint64Var(&token, "token", 0, "release only the grant with this fencing token")
	cmd.Flags().StringVar(&id, "id", "", "the id of a claim")
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, for the claim's history")
	_ = cmd.RegisterFlagCompletionFunc("id", completeFlag(completeIDs))
	return clientCommand(cmd, func(ctx context.Context, c *connect.Connection, args []string) (show.View, error) {
		switch {
		case len(args) == 1 && id == "" && owner != "" && reason == "":
			return releaseLock(ctx, c, args[0], owner, given(cmd, "token", token))
		case len(args) == 0 && id != "" && owner == "" && !cmd.Flags().Changed("token"):
			return endClaim(cmd.Context(), c, id, reason)
		default:
			return nil, exit.Usagef(`give NAME and --owner for a lock, and for a claim --id`)
		}
	})
}

func endClaim(ctx context.Context, c *connect.Connection, id, reason string) (show.View, error) {
	id, err := wholeID(ctx, c, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.Request(ctx)
	defer cancel()
	ended, err := c.EndClaim(ctx, &models.EndClaimRequest{Id: id, Reason: reason})
	if err != nil {
		return nil, err
	}
	return silent{changedClaim(ended)}, nil
}

func releaseLock(ctx context.Context, c *connect.Connection, name, owner string, token *uint64) (show.View, error) {
	req := &models.ReleaseRequest{Resource: &models.Resource{Key: name, Owner: owner}, Token: token}
	if _, err := c.Release(ctx, req); err != nil {
		return nil, hold.Taken(ctx, c, hold.Free(err, name, req.GetToken()), name)
	}
	return silent{releasedLock{name, owner, token}}, nil
}

// releasedLock is a lock that was released.
type releasedLock struct {
	Key   string  `json:"key"`
	Owner string  `json:"owner"`
	Token *uint64 `json:"token"`
}

func (v releasedLock) Names() []string { return []string{v.Key} }

func (v releasedLock) Text(look show.Look) string {
	t := show.NewTable(show.Long("NAME"), show.Long("OWNER"), show.Fixed("TOKEN"))
	t.Add(show.Plain(printable.Quoted(v.Key)), show.Plain(printable.Quoted(v.Owner)), show.TokenCell(v.Token))
	return t.Text(look)
}
