package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/doors/auth"
)

func newRulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rules",
		Short:   "Check rules for the server's --auth-rules",
		Example: `  locket rules check rules.yaml`,
	}
	cmd.AddCommand(newRulesCheckCommand())
	return cmd
}

func newRulesCheckCommand() *cobra.Command {
	var credentials string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a file of rules: read it, explain it, and test its examples",
		Long: `Check a file of rules: explain each rule, warn of suspicious rules, and test the file's examples. The status is 1 if the
file is invalid or an example fails: a server refuses such a file.

With --credentials it also prints the rules for each credential of a credentials file, by name and id, and warns of
rules about unknown names.`,
		Example: `  locket rules check rules.yaml
  locket rules check rules.yaml --credentials credentials.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			rules, err := parseFile("the rules", args[0], auth.ParseRules)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, line := range rules.Explain() {
				fmt.Fprintln(out, line)
			}
			for _, warning := range rules.Lint() {
				fmt.Fprintln(cmd.ErrOrStderr(), "locket: warning:", warning)
			}
			if credentials != "" {
				if err := checkCredentials(cmd, rules, credentials); err != nil {
					return err
				}
			}
			if err := rules.Test(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "%d rules, %d examples: good\n", len(rules.Explain()), rules.Examples())
			return err
		},
	}
	cmd.Flags().StringVar(&credentials, "credentials", "", "a credentials file to compare the rules with")
	return cmd
}

// checkCredentials prints which rules are about the credentials of a credentials file.
func checkCredentials(cmd *cobra.Command, rules *auth.Rules, file string) error {
	credentials, err := parseFile("the credentials file", file, auth.ParseCredentials)
	if err != nil {
		return err
	}
	for _, entry := range credentials.Entries() {
		fmt.Fprintln(cmd.OutOrStdout(), entry)
		id, err := entry.Identity()
		if err != nil {
			return err
		}
		for _, line := range rules.About(id) {
			fmt.Fprintln(cmd.OutOrStdout(), "  "+line)
		}
	}
	for _, warning := range rules.Unknown(credentials) {
		fmt.Fprintln(cmd.ErrOrStderr(), "locket: warning:", warning)
	}
	return nil
}
