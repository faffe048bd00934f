package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
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
		ctx, cancel := c.Request(ctx)
		page, err := ask(ctx, proto.Uint32(uint32(size)), token)
		cancel()
		if err != nil {
			return nil, false, err
		}
		for _, element := range elements(page) {
			views = append(views, view(element))
		}
		if token = page.GetNextPageToken(); token == "" || limit > 0 && len(views) == limit {
			return views, token != "", nil
		}
	}
}

// page is listOr that says if there is more of the list.
func page(cmd *cobra.Command, list show.View, what string, more bool, none string) (show.View, error) {
	if more {
		fmt.Fprintf(cmd.ErrOrStderr(), "locket: there are more %s than these; --limit 0 lists all\n", what)
	}
	return listOr(cmd, list, none)
}

// listOr returns a list to print. In the place of a table without rows it says on standard error what there is none of.
func listOr(cmd *cobra.Command, list show.View, none string) (show.View, error) {
	format, err := show.FormatOf(cmd)
	if err == nil && format.IsText() && len(list.Names()) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "locket:", none)
		return nil, nil
	}
	return list, err
}

// maxSorted is how many claims are sorted here.
const maxSorted = 100_000

// listClaims returns the claims that pass the filters, at most so many, or all if limit is 0; and whether there are more.
func listClaims(ctx context.Context, c *connect.Connection, req *models.ListClaimsRequest, limit int) (claims claimList, more bool, err error) {
	return collect(ctx, c, limit, func(ctx context.Context, size *uint32, token string) (*models.ListClaimsResponse, error) {
		if req.Limit, req.PageToken = size, token; token != "" {
			req.Offset = 0
		}
		return c.ListClaims(ctx, req)
	}, (*models.ListClaimsResponse).GetClaims, viewClaim)
}

// listSessions returns all sessions.
func listSessions(ctx context.Context, c *connect.Connection) (sessionList, error) {
	sessions, _, err := collect(ctx, c, 0, func(ctx context.Context, size *uint32, token string) (*models.ListSessionsResponse, error) {
		return c.ListSessions(ctx, &models.ListSessionsRequest{Limit: size, PageToken: token})
	}, (*models.ListSessionsResponse).GetSessions, jsonview.OfSession)
	return sessions, err
}

// sessionList is all sessions.
type sessionList []jsonview.Session

func (l sessionList) Names() []string {
	return show.NamesOf(l, func(s jsonview.Session) string { return s.ID })
}

func (l sessionList) Text(look show.Look) string {
	t := show.NewTable(show.Long("OWNER"), show.Fixed("HOLDS"), show.Fixed("WAITS"), show.Since, show.Fixed("ENDS IN"), show.OnlyWide("TTL"), show.Long("SERVER"), show.ShortID(show.ShortSession))
	for _, s := range l {
		t.Add(show.Plain(printable.Quoted(s.Owner)), show.Plain(strconv.FormatUint(uint64(s.Holding), 10)), show.Plain(strconv.FormatUint(uint64(s.Waiting), 10)),
			show.Plain(look.Since(show.Moment{At: time.Time(s.Created)})), show.TtlCell(s.EndsIn), show.TtlCell(&s.TTL), show.NameCell(s.Server), show.Plain(s.ID))
	}
	return t.Text(look)
}

// maxPage is how many elements of a list the server returns at once.
const maxPage = 1000
