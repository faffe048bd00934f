package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

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
