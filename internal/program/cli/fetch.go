package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/printable"
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
		RunE: func(cmd *cobra.Command, args []string) error {
			return connect.With(cmd, func(ctx context.Context, c *connect.Connection) error {
				resp, err := c.Fetch(ctx, &models.FetchRequest{Key: args[0]})
				if err != nil {
					return hold.Free(err, args[0], 0)
				}
				return show.Print(cmd, heldView{jsonview.OfLock(resp.GetResource()), resp.GetToken()})
			})
		},
	}
	return clientCommand(cmd)
}

func (v heldView) Names() []string { return []string{v.Key} }

func (v heldView) Text(look show.Look) string {
	t := show.NewTable(show.Long("NAME"), show.Long("OWNER"), show.Long("VALUE"), show.Fixed("TOKEN"))
	t.Add(show.Plain(printable.Quoted(v.Key)), show.NameCell(v.Owner), show.NameCell(v.Value), show.Plain(strconv.FormatUint(v.Token, 10)))
	return t.Text(look)
}

// Line implements show.liner: a table for people, and for scripts what "cut -f1" takes.
func (v heldView) Line(look show.Look) string {
	if look.Terminal {
		return v.Text(look)
	}
	return fmt.Sprintf("%s\t%d\t%s\n", scriptField(v.Owner), v.Token, scriptField(v.Value))
}

// scriptField returns a text without tabs and newlines, in quotes if it needs escapes.
func scriptField(text *string) string {
	switch {
	case text == nil:
		return ""
	case !printable.Is(*text) || strings.HasPrefix(*text, `"`):
		return strconv.Quote(*text)
	default:
		return *text
	}
}
