package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/auth"
	"github.com/locket-service/locket/cli/exit"
)

func newTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Make tokens for clients, for the server's --auth-tokens",
		Example: `  locket token new ci --file tokens.yaml > ci.token`,
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenNewCommand())
	return cmd
}

func newTokenNewCommand() *cobra.Command {
	var groups []string
	var file string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Make a token, and print it once",
		Long: `Make a token, and print it. It is printed once: the token file has only its hash.
With --file the entry for the token file is added to it, else it is printed on
standard error. A server reads its token file again when it changes. Several
entries may have one name, so that a token can be replaced without a break.

Who shows the token is token:NAME, in the groups token:GROUP.`,
		Example: `  locket token new ci --file tokens.yaml > ci.token
  locket token new alice --groups builders,ops`,
		Args: takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			token, hash := auth.NewToken()
			entry := auth.TokenEntry{Name: args[0], Hash: hash, Groups: groups}
			if _, err := auth.NewIdentity(auth.TokenPrefix, entry.Name, groups); err != nil {
				return exit.With(exit.Usage, err)
			}
			text, err := yaml.Marshal([]auth.TokenEntry{entry})
			if err != nil {
				return err
			}
			if file != "" {
				err = addEntry(file, string(text))
			} else {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "# for the token file, below \"tokens:\"\n%s", text)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "the groups of the identity")
	cmd.Flags().StringVar(&file, "file", "", "add the entry to this token file")
	return cmd
}

// addEntry adds an entry to a token file, which is replaced as a whole: a server may read it at any time.
func addEntry(file, entry string) error {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(text) == 0 {
		text = []byte("tokens:\n")
	}
	if text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	text = append(text, entry...)
	if _, err := auth.ParseTokens(text); err != nil {
		return fmt.Errorf("%s: the entry cannot be added at its end; add it by hand (%w)", file, err)
	}
	next := file + ".new"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}
