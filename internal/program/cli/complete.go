package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
)

// completeTimeout bounds the time that a shell waits for names: no server, no names.
const completeTimeout = time.Second

// completeNames completes the names of resources that somebody holds or waits for.
func completeNames(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return completeClaims(cmd, typed, args, (*models.Claim).GetResource)
}

// completeIDs completes the ids of claims that have not ended.
func completeIDs(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return completeClaims(cmd, typed, args, (*models.Claim).GetId)
}

// completeFlag is like complete for the value of a flag, whatever the arguments are.
func completeFlag(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return complete(cmd, nil, typed)
	}
}

// completeList completes the last of some values that are separated by commas.
func completeList(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) (found []string, directive cobra.ShellCompDirective) {
		already := typed[:strings.LastIndex(typed, ",")+1]
		for _, value := range values {
			if !slices.Contains(strings.Split(already, ","), value) {
				found = append(found, already+value)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOne is like complete for the first argument, and completes no other.
func completeOne(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// completeArguments returns the completion of arguments by their names.
func completeArguments(names []string) cobra.CompletionFunc {
	switch strings.Trim(strings.Join(names, " "), "[]") {
	case "NAME":
		return completeOne(completeNames)
	case "ID":
		return completeOne(completeIDs)
	default:
		return cobra.NoFileCompletions
	}
}

func completeSessions(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return completeFrom(cmd, typed, nil, func(ctx context.Context, c *connect.Connection) ([]string, error) {
		page, err := c.ListSessions(ctx, &models.ListSessionsRequest{Limit: proto.Uint32(maxPage)})
		return show.NamesOf(page.GetSessions(), (*models.SessionInfo).GetId), err
	})
}

// completeClaims suggests a property of live claims that begins with the typed text and is not on the command line yet.
func completeClaims(cmd *cobra.Command, typed string, already []string, of func(*models.Claim) string) ([]string, cobra.ShellCompDirective) {
	return completeFrom(cmd, typed, already, func(ctx context.Context, c *connect.Connection) ([]string, error) {
		page, err := c.ListClaims(ctx, &models.ListClaimsRequest{Status: live, Order: models.Order_ORDER_NEWEST, Limit: proto.Uint32(maxPage)})
		return show.NamesOf(page.GetClaims(), of), err
	})
}

// completeFrom suggests the names that begin with the typed text and are not on the command line yet.
func completeFrom(cmd *cobra.Command, typed string, already []string, ask func(context.Context, *connect.Connection) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	c, err := connect.Dial(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	names, err := ask(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, typed) || !printable.Is(name) || slices.Contains(already, name)
	})
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// completeInBash has the script for bash work without the package bash-completion, whose function cobra's script calls.
func completeInBash(completion *cobra.Command) {
	for _, shell := range completion.Commands() {
		if shell.Name() != "bash" {
			continue
		}
		shell.Long = "Print the completion script for bash. It works with and without the package bash-completion."
		shell.RunE = func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			bare, _ := cmd.Flags().GetBool("no-descriptions")
			if err := cmd.Root().GenBashCompletionV2(out, !bare); err != nil {
				return err
			}
			_, err := fmt.Fprint(out, withoutPackage)
			return err
		}
	}
}

// withoutPackage defines the function of the package bash-completion that cobra's script needs. Words are split at blanks alone, so
// that = and : belong to them.
const withoutPackage = `
if ! declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref()
    {
        local line=${COMP_LINE:0:COMP_POINT}
        read -ra words <<<"$line"
        [[ $line == *[[:space:]] ]] && words+=("")
        cword=$((${#words[@]} - 1))
        cur=${words[cword]}
        prev=${words[cword > 0 ? cword - 1 : 0]}
    }
fi
`
