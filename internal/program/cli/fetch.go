package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newFetchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fetch NAME",
		Short: "Print the holder of a lock: owner, fencing token, value",
		Long: `Print the holder of a lock: owner, fencing token, value. On a terminal it is a table, otherwise one line with tabs. The
status is 4 if nobody holds it.`,
		Example: `  locket fetch nightly-report
  locket fetch nightly-report -o json`,
		Args: takes("NAME"),
	}
	return clientCommand(cmd, func(ctx context.Context, c *connect.Connection, args []string) (show.View, error) {
		resp, err := c.Fetch(ctx, &models.FetchRequest{Key: args[0]})
		if err != nil {
			return nil, hold.Free(err, args[0], 0)
		}
		return heldView{jsonview.OfLock(resp.GetResource()), resp.GetToken()}, nil
	})
}
