package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newWhoAmICommand() *cobra.Command {
	return clientCommand(&cobra.Command{
		Use:   "whoami",
		Short: "Show your identity, as the server knows it",
		Example: `  locket whoami --credential-file ci.credential
  locket whoami -o json`,
	}, func(ctx context.Context, c *connect.Connection, _ []string) (show.View, error) {
		identity, err := c.WhoAmI(ctx, &models.WhoAmIRequest{})
		if err != nil {
			return nil, err
		}
		return identityView{jsonview.OfIdentity(identity)}, nil
	})
}

type identityView struct{ jsonview.Identity }

func (v identityView) Names() []string {
	if v.Name == nil {
		return nil
	}
	return []string{*v.Name}
}

func (v identityView) Text(look show.Look) string {
	if !v.Authentication {
		return "nobody in particular: the server does not ask who its callers are\n"
	}
	if v.Name == nil {
		return "a caller without an identity\n"
	}
	text := look.Field("identity", printable.Quoted(*v.Name))
	for _, group := range v.Groups {
		text += look.Field("group", printable.Quoted(group))
	}
	return text
}

func newCanICommand() *cobra.Command {
	return clientCommand(&cobra.Command{
		Use:   "can-i RIGHT NAME",
		Short: "Check whether you may read, hold, revoke or administer a resource",
		Long: `Ask whether the server's rules allow you to read, hold, revoke or administer a resource. The status is 0 if they do, and
6 if they do not.`,
		Example: `  locket can-i hold deploy/prod`,
	}, func(ctx context.Context, c *connect.Connection, args []string) (show.View, error) {
		var right jsonview.Right
		if err := right.UnmarshalText([]byte(args[0])); err != nil {
			return nil, exit.Usagef("unknown right %q; use %s", args[0], strings.Join(right.Names(), ", "))
		}
		answer, err := c.CanI(ctx, &models.CanIRequest{Right: models.Right(right), Resource: args[1]})
		if err != nil {
			return nil, err
		}
		if !answer.GetAllowed() {
			err = exit.With(exit.Denied, errors.New("not allowed"))
		}
		return permissionView{jsonview.OfPermission(answer)}, err
	})
}

type permissionView struct{ jsonview.Permission }

func (v permissionView) Names() []string {
	return []string{map[bool]string{true: "yes", false: "no"}[v.Allowed]}
}

func (v permissionView) Text(show.Look) string {
	text := v.Names()[0]
	if v.Line != nil {
		text += fmt.Sprintf(", by line %d of the rules", *v.Line)
	}
	return text + "\n"
}
