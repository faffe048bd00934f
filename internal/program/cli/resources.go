package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// resourceOrders are the orders of a list of resources; the first one is the default.
var resourceOrders = []string{"contended", "name"}

func newResourcesCommand() *cobra.Command {
	var prefix, delimiter, by string
	var limit uint32
	cmd := &cobra.Command{
		Use:   "resources",
		Short: "List the resources that are held or waited for: holder, waiters, oldest wait",
		Long: `List the resources that are held or waited for: the holder, the number of waiting claims, and the oldest wait. The most
contended come first. "locket resource NAME" shows one resource with its whole queue. With --delimiter the names are a
tree: names that continue after the delimiter are grouped into one folder, sorted by name.`,
		Example: `  locket resources
  locket resources --prefix deploy/ --sort name
  locket resources --prefix deploy/ --delimiter /
  locket resources --limit 10 -o wide`,
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only resources with this prefix")
	cmd.Flags().StringVar(&delimiter, "delimiter", "", "group names into folders at this text, such as /; sorts by name")
	cmd.Flags().StringVar(&by, "sort", resourceOrders[0], "contended: most waiting claims first; name: by name")
	cmd.Flags().Uint32Var(&limit, "limit", 100, "how many resources; 0: all")
	_ = cmd.RegisterFlagCompletionFunc("prefix", completeFlag(completeNames))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(resourceOrders, cobra.ShellCompDirectiveNoFileComp))
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, _ []string) (show.View, error) {
		if delimiter != "" && !cmd.Flag("sort").Changed {
			by = "name"
		}
		var order jsonview.ResourceOrder
		if order.UnmarshalText([]byte(by)) != nil {
			return nil, exit.Usagef("--sort %q: must be one of %s", by, strings.Join(resourceOrders, ", "))
		}
		req := &models.ListResourcesRequest{Prefix: prefix, Delimiter: delimiter, Order: models.ResourceOrder(order)}
		resources, more, err := listResources(cmd.Context(), c, req, int(limit))
		if err != nil {
			return nil, err
		}
		return page(cmd, resources, "resources", more, "no resource"+below(prefix)+" is held or waited for")
	})
}

// listResources returns the resources that a request asks for, at most so many, or all if limit is 0; and whether there are more.
func listResources(ctx context.Context, c *connect.Connection, req *models.ListResourcesRequest, limit int) (resources resourceList, more bool, err error) {
	return collect(ctx, c, limit, func(ctx context.Context, size *uint32, token string) (*models.ListResourcesResponse, error) {
		req.Limit, req.PageToken = size, token
		return c.ListResources(ctx, req)
	}, (*models.ListResourcesResponse).GetResources, func(r *models.ResourceInfo) jsonview.Resource {
		return jsonview.OfResource(r, jsonview.OfPlace)
	})
}

// resourceList is some resources.
type resourceList []jsonview.Resource

func (l resourceList) Names() []string {
	return show.NamesOf(l, func(r jsonview.Resource) string { return r.Resource })
}

func (l resourceList) Text(look show.Look) string {
	t := show.NewTable(show.Long("RESOURCE"), show.Long("HOLDER"), show.Since, show.Fixed("WAITING"), show.Fixed("OLDEST WAIT"), show.OnlyWide("MODE"), show.OnlyWide("TTL"),
		show.OnlyWide("TOKEN"), show.OnlyWide("ID"))
	for _, r := range l {
		if r.Folder {
			none := show.Plain(printable.None)
			t.Add(show.Plain(printable.Quoted(r.Resource)), show.Plain("(folder)"), none, none, none, none, none, none, none)
			continue
		}
		if r.Holder == nil { // in a quarantine
			none := show.Plain(printable.None)
			t.Add(show.Plain(printable.Quoted(r.Resource)), show.Cell{Text: "free", Color: show.Dim}, none, waitingCell(r.Waiting, r.Deadlock), show.TtlCell(r.OldestWait), none, none, none, none)
			continue
		}
		h := *r.Holder
		t.Add(show.Plain(printable.Quoted(r.Resource)), holderCell(h, r.Holding), show.Plain(look.Since(sinceOf(h))), waitingCell(r.Waiting, r.Deadlock), show.TtlCell(r.OldestWait),
			show.Plain(h.Mode.String()), show.TtlCell(h.TTL), show.TokenCell(h.Token), show.Plain(h.ID))
	}
	return t.Text(look)
}
