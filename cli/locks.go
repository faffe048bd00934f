package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/cli/printable"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newLocksCommand() *cobra.Command {
	return newListCommand(models.TypeCode_LOCK, &cobra.Command{
		Use:   "locks",
		Short: "List the locks that are held",
		Example: `  locket locks
  locket locks -o json`,
	})
}

func newPresencesCommand() *cobra.Command {
	return newListCommand(models.TypeCode_PRESENCE, &cobra.Command{
		Use:   "presences",
		Short: "List the presences that are announced",
		Example: `  locket presences
  locket presences -o name`,
	})
}

// newListCommand has a command list all locks of a type.
func newListCommand(code models.TypeCode, cmd *cobra.Command) *cobra.Command {
	cmd.Args = takes()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withServers(cmd, func(ctx context.Context, c *connection) error {
			resp, err := c.FetchAll(ctx, &models.FetchAllRequest{TypeCode: code})
			if err != nil {
				return err
			}
			locks := make(lockList, len(resp.GetResources()))
			for i, resource := range resp.GetResources() {
				locks[i] = jsonview.OfLock(resource)
			}
			slices.SortStableFunc(locks, func(a, b jsonview.Lock) int { return strings.Compare(a.Key, b.Key) })
			return printView(cmd, locks)
		})
	}
	return clientCommand(cmd)
}

// lockList is all locks, or all presences.
type lockList []jsonview.Lock

func (l lockList) names() []string {
	names := make([]string, len(l))
	for i, v := range l {
		names[i] = v.Key
	}
	return names
}

func (l lockList) text(look look) string {
	t := newTable("NAME", "OWNER", "VALUE")
	for _, v := range l {
		t.add(plain(printable.Quoted(v.Key)), nameCell(v.Owner), valueCell(v.Value))
	}
	return t.text(look)
}
