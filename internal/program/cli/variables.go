package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/settings"
)

// childVariables are set by `locket run`, `locket elect` and `locket watch --exec` for the commands that they start.
var childVariables = []string{
	"LOCKET_NAME", "LOCKET_ID", "LOCKET_TOKEN", "LOCKET_RUNS",
	"LOCKET_OWNER", "LOCKET_SESSION", "LOCKET_BEFORE", "LOCKET_STATUS", "LOCKET_VALUE", "LOCKET_REASON", "LOCKET_TIME",
}

// serviceVariable and serviceAddress match the variables that Kubernetes sets for a Service named locket, or locket-…; the value of the second
// kind is an address with ://.
var (
	serviceVariable = regexp.MustCompile(`^LOCKET_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	serviceAddress  = regexp.MustCompile(`^LOCKET_(\w+_)?PORT$`)
)

// unknownVariables returns the variables LOCKET_… of an environment that have no effect on any command, each with suggestions.
func unknownVariables(root *cobra.Command, environ []string) (unknown []string) {
	known := variablesOf(root)
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case !strings.HasPrefix(name, "LOCKET_") || value == "" || slices.Contains(known, name):
		case serviceVariable.MatchString(name), serviceAddress.MatchString(name) && strings.Contains(value, "://"):
		default:
			unknown = append(unknown, name+didYouMean(alike(known, name), ""))
		}
	}
	slices.Sort(unknown)
	return unknown
}

// variablesOf returns the variables that commands read, or set for their children.
func variablesOf(root *cobra.Command) []string {
	known := append([]string{passwordVariable}, childVariables...)
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if (readsAll(cmd) || isConnection(flag)) && !slices.Contains(notVariables, flag.Name) {
				known = append(known, settings.Variable(flag.Name))
			}
		})
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// readsAll reports whether a command reads all of its flags but notVariables from the environment. Commands that work on a database do;
// others read only the connection flags.
func readsAll(cmd *cobra.Command) bool { return cmd.Flags().Lookup("database") != nil }

var notVariables = []string{"help", "output"}

func isConnection(flag *pflag.Flag) bool { return flag.Annotations[connect.FlagMark] != nil }

// warnOfVariables says which variables have no effect, before a command that reads some. `locket server` logs them.
func warnOfVariables(cmd *cobra.Command, environ []string) {
	reads, helper := readsAll(cmd) && cmd.Name() != "server", false
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		reads = reads || isConnection(flag)
		helper = helper || flag.Hidden && flag.Changed // of a `locket run`, which has said it
	})
	if !reads || helper {
		return
	}
	for _, unknown := range unknownVariables(cmd.Root(), environ) {
		fmt.Fprintln(cmd.ErrOrStderr(), "locket: variable of the environment without effect:", printable.OneLine(unknown))
	}
}
