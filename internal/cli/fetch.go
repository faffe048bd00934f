package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/cli/hold"
	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newFetchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fetch NAME",
		Short: "Print who holds a lock: owner, fencing token, value",
		Long: `Print who holds a lock: owner, fencing token, value; on a terminal as a table, and
elsewhere as one line, with tabs between them. Status 4 says that nobody does.`,
		Example: `  locket fetch nightly-report
  locket fetch nightly-report -o json`,
		Args: takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withServers(cmd, func(ctx context.Context, c *connection) error {
				resp, err := c.Fetch(ctx, &models.FetchRequest{Key: args[0]})
				if err != nil {
					return hold.Free(err, args[0], 0)
				}
				return printView(cmd, heldView{jsonview.OfLock(resp.GetResource()), resp.GetToken()})
			})
		},
	}
	return clientCommand(cmd)
}

func (v heldView) names() []string { return []string{v.Key} }

func (v heldView) text(look look) string {
	t := newTable(long("NAME"), long("OWNER"), long("VALUE"), fixed("TOKEN"))
	t.add(plain(printable.Quoted(v.Key)), nameCell(v.Owner), nameCell(v.Value), plain(strconv.FormatUint(v.Token, 10)))
	return t.text(look)
}

// line implements liner: a table for people, and for scripts what "cut -f1" takes.
func (v heldView) line(look look) string {
	if look.terminal {
		return v.text(look)
	}
	return fmt.Sprintf("%s\t%d\t%s\n", field(v.Owner), v.Token, field(v.Value))
}

// field returns a text that holds no tab and no newline: as it is if it can be, else in
// quotes.
func field(text *string) string {
	switch {
	case text == nil:
		return ""
	case !printable.Is(*text) || strings.HasPrefix(*text, `"`):
		return strconv.Quote(*text)
	default:
		return *text
	}
}
