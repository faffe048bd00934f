package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
)

func newClaimsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "List claims: by default the live ones, newest first",
		Long: `List claims: by default the live ones, newest first. Several filters apply together. --all and --status also show claims
that have ended. A bound on a duration excludes claims without that duration.

--sort newest and oldest use the time of creation, waiting and active the time that a claim has waited or held (longest
first), ttl the time left, resource and owner the names. All but newest and oldest read every claim that passes the
filters, at most 100,000.`,
		Example: `  locket claims --prefix deploy/
  locket claims --resource backup --all
  locket claims --status expired,revoked --minimum-created 24h
  locket claims --status waiting --sort waiting --minimum-waiting-duration 5m
  locket claims --status active --maximum-ttl 10s -o name
  locket claims --owner me --all --minimum-created 24h --limit 0 -o json
  locket claims --minimum-created 2026-11-21T17:00:00Z --maximum-created 2026-11-21T18:00:00Z`,
	}
	addFilters(cmd)
	cmd.Flags().String("sort", sortNames[0], strings.Join(sortNames, ", "))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(sortNames, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().Uint32("limit", 100, "how many claims; 0: all")
	cmd.Flags().Uint32("offset", 0, "skip this many claims")
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, _ []string) (show.View, error) {
		req, err := filtersOf(cmd)
		if err != nil {
			return nil, err
		}
		by := cmd.Flag("sort").Value.String()
		if !slices.Contains(sortNames, by) {
			return nil, exit.Usagef("--sort %q: must be one of %s", by, strings.Join(sortNames, ", "))
		}
		limit, _ := cmd.Flags().GetUint32("limit")
		offset, _ := cmd.Flags().GetUint32("offset")
		claims, more, err := sortedClaims(cmd.Context(), c, req, by, int(offset), int(limit))
		if err != nil {
			return nil, err
		}
		none := "no claim passes the filters"
		if flags := cmd.Flags(); !flags.Changed("all") && !flags.Changed("status") {
			none = "no claim holds or waits; --all also lists ended claims"
		}
		return page(cmd, claims, "claims", more, none)
	})
}

// sortNames are the orders of a list; the first one is the default.
var sortNames = []string{"newest", "oldest", "waiting", "active", "ttl", "resource", "owner"}

// sortedClaims is listClaims in an order, without the first claims.
func sortedClaims(ctx context.Context, c *connect.Connection, req *models.ListClaimsRequest, by string, offset, limit int) (claims claimList, more bool, err error) {
	if req.Order = models.Order_ORDER_NEWEST; by == "oldest" {
		req.Order = models.Order_ORDER_OLDEST
	}
	less := comparisons[by]
	if less == nil {
		req.Offset = uint32(offset)
		return listClaims(ctx, c, req, limit)
	}
	claims, more, err = listClaims(ctx, c, req, maxSorted)
	if err != nil {
		return nil, false, err
	}
	if more {
		return nil, false, fmt.Errorf("--sort %s: more than %d claims pass the filters; give others, or --sort newest or oldest", by, maxSorted)
	}
	slices.SortStableFunc(claims, less)
	claims = claims[min(offset, len(claims)):]
	if limit > 0 && len(claims) > limit {
		return claims[:limit], true, nil
	}
	return claims, false, nil
}

// comparisons are the orders that the command makes itself.
var comparisons = map[string]func(a, b claimView) int{
	"waiting": func(a, b claimView) int { return cmp.Compare(b.WaitingDuration, a.WaitingDuration) },
	"active": func(a, b claimView) int {
		return cmp.Compare(orElse(b.ActiveDuration, -1), orElse(a.ActiveDuration, -1))
	},
	"ttl": func(a, b claimView) int {
		return cmp.Compare(orElse(a.TTL, math.MaxFloat64), orElse(b.TTL, math.MaxFloat64))
	},
	"resource": func(a, b claimView) int { return strings.Compare(a.Resource, b.Resource) },
	"owner":    func(a, b claimView) int { return strings.Compare(orElse(a.Owner, ""), orElse(b.Owner, "")) },
}

func orElse[T any](value *T, other T) T {
	if value == nil {
		return other
	}
	return *value
}
