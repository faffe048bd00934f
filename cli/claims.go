package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/cli/printable"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newClaimsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "List claims, those that have ended too, oldest first",
		Long: `List claims, those that have ended too, oldest first: those that pass every filter.
A bound of a duration leaves out the claims that have no such duration.`,
		Example: `  locket claims --resource backup
  locket claims --status waiting --minimum-waiting-duration 5m
  locket claims --status active --maximum-ttl 10s -o name
  locket claims --owner me --minimum-created 24h --limit 0 -o json
  locket claims --minimum-created 2026-11-21T17:00:00Z --maximum-created 2026-11-21T18:00:00Z`,
		Args: takes(),
	}
	addFilters(cmd)
	cmd.Flags().Uint32("limit", 100, "how many claims; 0: all")
	cmd.Flags().Uint32("offset", 0, "leave out so many claims first")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		req, err := filtersOf(cmd)
		if err != nil {
			return err
		}
		limit, _ := cmd.Flags().GetUint32("limit")
		req.Offset, _ = cmd.Flags().GetUint32("offset")
		return withServers(cmd, func(_ context.Context, c *connection) error {
			claims, more, err := c.list(cmd.Context(), req, int(limit))
			if err != nil {
				return err
			}
			if more {
				fmt.Fprintf(cmd.ErrOrStderr(), "locket: there are more than these %d claims; --limit 0 lists all\n", limit)
			}
			return printView(cmd, claims)
		})
	}
	return clientCommand(cmd)
}

// maxPage is how many claims the server returns at once.
const maxPage = 1000

// list returns the claims that pass the filters, at most so many, or all if limit is 0, page
// by page; and whether there are more.
func (c *connection) list(ctx context.Context, req *models.ListClaimsRequest, limit int) (claims claimList, more bool, err error) {
	claims = claimList{}
	for {
		size := maxPage
		if limit > 0 {
			size = min(size, limit-len(claims))
		}
		req.Limit = proto.Uint32(uint32(size))
		page, err := c.listPage(ctx, req)
		if err != nil {
			return nil, false, err
		}
		for _, claim := range page.GetClaims() {
			claims = append(claims, viewClaim(claim))
		}
		req.Offset, req.PageToken = 0, page.GetNextPageToken()
		more = req.GetPageToken() != ""
		if !more || len(claims) == limit {
			return claims, more, nil
		}
	}
}

func (c *connection) listPage(ctx context.Context, req *models.ListClaimsRequest) (*models.ListClaimsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return c.ListClaims(ctx, req)
}

// claimList is some claims.
type claimList []claimView

func (l claimList) names() []string {
	ids := make([]string, len(l))
	for i, v := range l {
		ids[i] = v.ID
	}
	return ids
}

func (l claimList) text(look look) string {
	t := newTable(fixed("ID"), long("RESOURCE"), long("OWNER"), onlyWide("MODE"), fixed("STATUS"), since("SINCE"), fixed("TTL"),
		onlyWide("TOKEN"), onlyWide("SESSION"), onlyWide("VALUE"), onlyWide("REASON"))
	for _, v := range l {
		t.add(plain(v.ID), plain(printable.Quoted(v.Resource)), nameCell(v.Owner), plain(v.Mode.String()), statusCell(v.Status),
			plain(look.since(v.since())), ttlCell(v.TTL), tokenCell(v.Token), nameCell(v.Session), valueCell(v.Value), nameCell(v.Reason))
	}
	return t.text(look)
}

func ttlCell(ttl *jsonview.Seconds) cell {
	if ttl == nil {
		return plain("")
	}
	return plain(brief(ttl.Duration(), 2))
}

// claimRow is a claim of which people see a row, with the token: they have just made or changed it.
type claimRow struct{ claimView }

func (v claimRow) text(look look) string {
	if look.wide {
		return claimList{v.claimView}.text(look)
	}
	t := newTable(fixed("ID"), long("RESOURCE"), fixed("STATUS"), fixed("TTL"), fixed("TOKEN"))
	t.add(plain(v.ID), plain(printable.Quoted(v.Resource)), statusCell(v.Status), ttlCell(v.TTL), tokenCell(v.Token))
	return t.text(look)
}
