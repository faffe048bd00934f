package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/auth"
	"github.com/locket-service/locket/cli/exit"
)

func newRulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rules",
		Short:   "Check rules for the server's --auth-rules",
		Example: `  locket rules check rules.yaml`,
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRulesCheckCommand())
	return cmd
}

func newRulesCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a file of rules: read it, explain it, and test its examples",
		Long: `Check a file of rules: read it, print what each rule says, warn of what is suspicious,
and test the examples that the file has. The status is 1 if the file is invalid, or
an example is decided otherwise: a server does not take such a file.`,
		Example: `  locket rules check rules.yaml`,
		Args:    takes("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			rules, err := auth.ParseRules(text)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			out := cmd.OutOrStdout()
			for _, line := range rules.Explain() {
				fmt.Fprintln(out, line)
			}
			for _, warning := range rules.Lint() {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
			}
			if err := rules.Test(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "%d rules, %d examples: good\n", len(rules.Explain()), rules.Examples())
			return err
		},
	}
}
