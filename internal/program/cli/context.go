package cli

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/settings"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/internal/program/server"
)

func newContextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Choose among the servers in your file of contexts",
		Long: `Choose among the servers in your file of contexts.

A context is a named set of connection settings: addresses, TLS, credentials. "locket context set" writes the file, and
you may edit it (docs/cli.md describes it). A command uses the context of --context, otherwise of $LOCKET_CONTEXT,
otherwise the current one.`,
		Example: `  locket context set staging --address locket.staging.internal:8891 --tls-ca ca.crt
  locket context list
  locket context use staging`,
	}
	cmd.AddCommand(newContextListCommand(), newContextUseCommand(), newContextSetCommand())
	return cmd
}

func newContextListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the contexts, and which is the current one",
		Example: `  locket context list
  locket context list -o json`,
		RunE: printing(func(cmd *cobra.Command, _ []string) (show.View, error) {
			contexts, err := settings.Contexts(cmd.Flags())
			if err != nil {
				return nil, err
			}
			list := make(contextList, len(contexts))
			for i, c := range contexts {
				list[i] = listedContext(c)
			}
			return listOr(cmd, list, "there is no context; to create one: locket context set NAME --address HOST:8891")
		}),
	}
	show.AddOutput(cmd)
	connect.AddContextFile(cmd.Flags())
	return cmd
}

func newContextUseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "use NAME",
		Short:             "Make a context the current one",
		Long:              `Make a context the current one: commands use it unless they name another. The rest of the file does not change.`,
		Example:           `  locket context use staging`,
		ValidArgsFunction: completeOne(connect.CompleteContexts),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := settings.Use(cmd.Flags(), args[0])
			if err != nil {
				return err
			}
			if name := os.Getenv(settings.Variable("context")); name != "" && name != args[0] {
				fmt.Fprintln(cmd.ErrOrStderr(), "locket:", printable.OneLine(fmt.Sprintf("%q is the current context in %s, but $LOCKET_CONTEXT is %q, and comes first", args[0], path, name)))
			}
			return nil
		},
	}
	connect.AddContextFile(cmd.Flags())
	return cmd
}

func newContextSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME [flags]",
		Short: "Create or change a context",
		Long: `Create or change a context: it gets the flags of "locket options" that are given, and keeps its other settings. An empty
value removes a setting. The first context becomes the current one. Comments in the file stay.`,
		Example: `  locket context set staging --address locket.staging.internal:8891 --tls-ca ca.crt
  locket context set staging --timeout 3s --credential-file ''`,
		ValidArgsFunction: completeOne(connect.CompleteContexts),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flag("context").Changed {
				return exit.Usagef("--context: NAME is the context to change")
			}
			given := make(map[string]string)
			connectFlags(cmd).VisitAll(func(flag *pflag.Flag) {
				if flag.Changed && flag.Name != "context-file" {
					given[flag.Name] = flag.Value.String()
				}
			})
			return settings.Set(cmd.Flags(), args[0], given)
		},
	}
	connect.AddFlags(cmd)
	return cmd
}

// listedContext is a context; credentials are not shown, only the files that have them.
type listedContext struct {
	Name     string            `json:"name"`
	Current  bool              `json:"current"`
	Settings map[string]string `json:"settings"`
}

// contextList is all contexts.
type contextList []listedContext

func (l contextList) Names() []string {
	return show.NamesOf(l, func(c listedContext) string { return c.Name })
}

func (l contextList) Text(look show.Look) string {
	t := show.NewTable(show.Fixed("CURRENT"), show.Long("NAME"), show.Long("ADDRESS"), show.Fixed("TLS"), show.Fixed("CREDENTIAL"))
	for _, c := range l {
		current := ""
		if c.Current {
			current = "*"
		}
		t.Add(show.Plain(current), show.Plain(printable.Quoted(c.Name)), show.Plain(printable.Quoted(cmp.Or(c.Settings["address"], server.DefaultGRPCAddress))), show.Plain(c.tls()), show.Plain(c.credential()))
	}
	return t.Text(look)
}

// tls says how the servers of a context are reached.
func (c listedContext) tls() string {
	switch {
	case c.Settings["tls-cert"] != "":
		return "mutual"
	case c.Settings["tls-ca"] != "":
		return "server"
	case c.Settings["insecure"] == "true":
		return "insecure"
	}
	return ""
}

// credential names the kind of credential that the servers get.
func (c listedContext) credential() string {
	switch {
	case c.Settings["credential-file"] != "":
		return "file"
	case c.Settings["oidc-issuer"] != "":
		return "OIDC"
	case c.Settings["tls-cert"] != "":
		return "certificate"
	}
	return ""
}
