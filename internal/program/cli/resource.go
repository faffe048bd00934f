package cli

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
)

func newResourceCommand() *cobra.Command {
	var limit uint32
	cmd := &cobra.Command{
		Use:   "resource NAME",
		Short: "Show the holders of a resource, and the queue of waiting claims",
		Example: `  locket resource backup
  locket resource backup --limit 1000 -o json`,
	}
	cmd.Flags().Uint32Var(&limit, "limit", 100, "how many waiting claims; at most 1000")
	return clientCommand(cmd, func(ctx context.Context, c *connect.Connection, args []string) (show.View, error) {
		queue, err := c.GetQueue(ctx, &models.GetQueueRequest{Resource: args[0], Limit: proto.Uint32(limit)})
		if err != nil {
			return nil, err
		}
		v := viewQueue(queue)
		if len(v.Holders) == 1 {
			v.value = hold.ValueOf(queue.GetHolders()[0])
		}
		return v, nil
	})
}
