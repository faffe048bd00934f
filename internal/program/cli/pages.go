package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/show"
)

// collect returns the elements of a list as views, page by page: at most so many, or all if limit is 0; and whether there are more.
// Each page has the time of one request.
func collect[P interface{ GetNextPageToken() string }, E, V any](
	ctx context.Context, c *connect.Connection, limit int, ask func(ctx context.Context, size *uint32, token string) (P, error),
	elements func(P) []E, view func(E) V,
) (views []V, more bool, err error) {
	views = []V{}
	for token := ""; ; {
		size := maxPage
		if limit > 0 {
			size = min(size, limit-len(views))
		}
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		page, err := ask(ctx, proto.Uint32(uint32(size)), token)
		cancel()
		if err != nil {
			return nil, false, err
		}
		for _, element := range elements(page) {
			views = append(views, view(element))
		}
		if token = page.GetNextPageToken(); token == "" || len(views) == limit {
			return views, token != "", nil
		}
	}
}

// printPage is printList that says if there is more of it.
func printPage(cmd *cobra.Command, list show.View, what string, more bool, none string) error {
	if more {
		fmt.Fprintf(cmd.ErrOrStderr(), "locket: there are more %s than these; --limit 0 lists all\n", what)
	}
	return printList(cmd, list, none)
}

// printList prints a list. In the place of a table without rows it says on standard error what there is none of.
func printList(cmd *cobra.Command, list show.View, none string) error {
	format, err := show.FormatOf(cmd)
	if err == nil && format.IsText() && len(list.Names()) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "locket:", none)
		return nil
	}
	return show.Print(cmd, list)
}
