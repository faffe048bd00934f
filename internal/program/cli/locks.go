package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newLocksCommand() *cobra.Command {
	return newListCommand(models.TypeCode_LOCK, "no lock is held", &cobra.Command{
		Use:   "locks",
		Short: "List the locks that are held: owner, TTL left, fencing token, value",
		Example: `  locket locks
  locket locks --prefix deploy/
  locket locks -o json`,
	})
}

func newPresencesCommand() *cobra.Command {
	return newListCommand(models.TypeCode_PRESENCE, "no presence is announced", &cobra.Command{
		Use:   "presences",
		Short: "List the presences that are announced: owner, TTL left, token, value",
		Example: `  locket presences
  locket presences -o name`,
	})
}

// newListCommand has a command list all locks of a type. It says none if there are none.
func newListCommand(code models.TypeCode, none string, cmd *cobra.Command) *cobra.Command {
	prefix := cmd.Flags().String("prefix", "", "only names with this prefix")
	_ = cmd.RegisterFlagCompletionFunc("prefix", completeFlag(completeNames))
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, _ []string) (show.View, error) {
		// Not FetchAll, which leaves out token and TTL.
		claims, _, err := listClaims(cmd.Context(), c, &models.ListClaimsRequest{Status: []models.Status{models.Status_STATUS_ACTIVE}, Prefix: *prefix}, 0)
		if err != nil {
			return nil, err
		}
		locks := lockList{}
		for _, claim := range claims {
			if claim.Type != nil && models.TypeCode(*claim.Type) == code {
				locks = append(locks, lockOf(claim))
			}
		}
		slices.SortStableFunc(locks, func(a, b listedLock) int { return strings.Compare(a.Key, b.Key) })
		return listOr(cmd, locks, none)
	})
}

// listedLock is a lock or a presence in a list.
type listedLock struct {
	jsonview.Lock
	Token *uint64           `json:"token"`
	TTL   *jsonview.Seconds `json:"ttl"`
}

func lockOf(claim claimView) listedLock {
	return listedLock{jsonview.Lock{Key: claim.Resource, Owner: claim.Owner, Value: claim.Value, Type: claim.Type}, claim.Token, claim.TTL}
}

// lockList is all locks, or all presences.
type lockList []listedLock

func (l lockList) Names() []string {
	return show.NamesOf(l, func(v listedLock) string { return v.Key })
}

func (l lockList) Text(look show.Look) string {
	t := show.NewTable(show.Long("NAME"), show.Long("OWNER"), show.Fixed("TTL"), show.Long("VALUE"), show.Fixed("TOKEN"))
	for _, v := range l {
		t.Add(show.Plain(printable.Quoted(v.Key)), show.NameCell(v.Owner), show.TtlCell(v.TTL), show.NameCell(v.Value), show.TokenCell(v.Token))
	}
	return t.Text(look)
}

func newFetchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fetch NAME",
		Short: "Print the holder of a lock: owner, fencing token, value",
		Long: `Print the holder of a lock: owner, fencing token, value. On a terminal it is a table, otherwise one line with tabs. The
status is 4 if nobody holds it.`,
		Example: `  locket fetch nightly-report
  locket fetch nightly-report -o json`,
	}
	return clientCommand(cmd, func(ctx context.Context, c *connect.Connection, args []string) (show.View, error) {
		resp, err := c.Fetch(ctx, &models.FetchRequest{Key: args[0]})
		if err != nil {
			return nil, hold.Free(err, args[0], 0)
		}
		return heldView{jsonview.OfLock(resp.GetResource()), resp.GetToken()}, nil
	})
}
