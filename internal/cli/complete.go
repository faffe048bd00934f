package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/cli/connect"
	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/models"
)

// completeTimeout bounds the time that a shell waits for names: no server, no names.
const completeTimeout = time.Second

// completeNames completes the names of resources that somebody holds or waits for.
func completeNames(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completeFrom(cmd, begun, args, func(claim *models.Claim) string { return claim.GetResource() })
}

// completeIDs completes the ids of claims that have not ended.
func completeIDs(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completeFrom(cmd, begun, args, func(claim *models.Claim) string { return claim.GetId() })
}

// completeFlag is like complete for the value of a flag, whatever the arguments are.
func completeFlag(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return complete(cmd, nil, begun)
	}
}

// completeList completes the last of some values that are separated by commas.
func completeList(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) (found []string, directive cobra.ShellCompDirective) {
		given := begun[:strings.LastIndex(begun, ",")+1]
		for _, value := range values {
			if !slices.Contains(strings.Split(given, ","), value) {
				found = append(found, given+value)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOne is like complete for the first argument, and completes no other.
func completeOne(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begun)
	}
}

// argumentsOfUse returns what completes the arguments of a command, by what its usage calls them.
func argumentsOfUse(use string) cobra.CompletionFunc {
	switch words := strings.Fields(use); {
	case len(words) > 1 && words[1] == "NAME":
		return completeOne(completeNames)
	case len(words) > 1 && words[1] == "ID":
		return completeOne(completeIDs)
	default:
		return cobra.NoFileCompletions
	}
}

// completeSessions completes the ids of sessions.
func completeSessions(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	c, err := connect.Dial(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	page, err := c.ListSessions(ctx, &models.ListSessionsRequest{Limit: proto.Uint32(maxPage)})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	for _, s := range page.GetSessions() {
		if strings.HasPrefix(s.GetId(), begun) {
			found = append(found, s.GetId())
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeFrom completes what some claims have in common with what was begun, less what was
// given already.
func completeFrom(cmd *cobra.Command, begun string, given []string, of func(*models.Claim) string) ([]string, cobra.ShellCompDirective) {
	c, err := connect.Dial(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	page, err := c.ListClaims(ctx, &models.ListClaimsRequest{Status: live, Order: models.Order_ORDER_NEWEST, Limit: proto.Uint32(maxPage)})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	for _, claim := range page.GetClaims() {
		name := of(claim)
		if strings.HasPrefix(name, begun) && printable.Is(name) && !slices.Contains(given, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
}
