package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/rewrite"
	"github.com/locket-service/locket/internal/program/cli/show"
)

func newCredentialCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "credential",
		Short:   "Make credentials for clients, for the server's --auth-credentials",
		Example: `  locket credential new ci --file credentials.yaml > ci.credential`,
	}
	cmd.AddCommand(newCredentialNewCommand(), newCredentialListCommand())
	return cmd
}

// defaultCredentialTTL is how long a credential is good.
const defaultCredentialTTL = 90 * 24 * time.Hour

func newCredentialListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list FILE",
		Short:   "List the entries of a credentials file: ids, names, groups, ends",
		Long:    `List the entries of a credentials file. The server's audit log names a credential by its id.`,
		Example: `  locket credential list credentials.yaml`,
		RunE: printing(func(cmd *cobra.Command, args []string) (show.View, error) {
			credentials, err := parseFile("the credentials file", args[0], auth.ParseCredentials)
			if err != nil {
				return nil, err
			}
			list := credentialList{}
			for _, entry := range credentials.Entries() {
				identity, err := entry.Identity()
				if err != nil {
					return nil, err
				}
				list = append(list, listedCredential{entry.ID(), identity.Name, append([]string{}, identity.Groups...), unlessNever(entry.Expires)})
			}
			return listOr(cmd, list, "the file has no credentials")
		}),
	}
	show.AddOutput(cmd)
	return cmd
}

// listedCredential is an entry of a credentials file.
type listedCredential struct {
	ID       string     `json:"id"`
	Identity string     `json:"identity"`
	Groups   []string   `json:"groups"`
	Ends     *time.Time `json:"ends"`
}

func unlessNever(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

// credentialList is the entries of a credentials file.
type credentialList []listedCredential

func (l credentialList) Names() []string {
	return show.NamesOf(l, func(c listedCredential) string { return c.ID })
}

func (l credentialList) Text(look show.Look) string {
	t := show.NewTable(show.Long("IDENTITY"), show.Long("GROUPS"), show.Fixed("ENDS"), show.Fixed("ID"))
	for _, c := range l {
		ends := show.Plain("never")
		if c.Ends != nil {
			ends = show.Plain(c.Ends.Format(time.RFC3339))
			if look.Now.After(*c.Ends) {
				ends = show.Colored(ends.Text+" (expired)", show.Red)
			}
		}
		t.Add(show.Plain(printable.Quoted(c.Identity)), show.Plain(printable.Quoted(strings.Join(c.Groups, ","))), ends, show.Plain(c.ID))
	}
	return t.Text(look)
}

func newCredentialNewCommand() *cobra.Command {
	var groups []string
	var file string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Make a credential, and print it once",
		Long: `Make a credential, and print it once: the credentials file has only its hash. With --file the entry is added to the
credentials file; otherwise it is printed on standard error. A server reads its credentials file again when it changes.
Several entries may have the same name, so that a credential can be replaced without a break. A credential ends 90 days
after it was made, or after --ttl (0 for never).

The file is replaced as a whole, by one process at a time, and keeps its mode and owner. It must not be readable or
writable by others.

The identity of the credential is credential:NAME, in the groups credential:GROUP.`,
		Example: `  locket credential new ci --file credentials.yaml > ci.credential
  locket credential new alice --groups builders,ops`,
		RunE: func(cmd *cobra.Command, args []string) error {
			credential, text, err := newCredential(args[0], groups, ttl)
			if err != nil {
				return err
			}
			if file != "" {
				err = addEntry(file, string(text))
			} else {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "# for the credentials file, below \"credentials:\"\n%s", text)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), credential)
			return err
		},
	}
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "the groups of the identity")
	cmd.Flags().StringVar(&file, "file", "", "add the entry to this credentials file")
	cmd.Flags().DurationVar(&ttl, "ttl", defaultCredentialTTL, "how long the credential is valid; 0 for ever")
	return cmd
}

// newCredential returns a new credential, and its entry for the credentials file.
func newCredential(name string, groups []string, ttl time.Duration) (credential string, entry []byte, err error) {
	credential, hash := auth.NewCredential()
	e := auth.CredentialEntry{Name: name, Hash: hash, Groups: groups}
	switch {
	case ttl < 0:
		return "", nil, exit.Usagef("--ttl: must be 0 or more")
	case ttl > 0:
		e.Expires = time.Now().Add(ttl).UTC().Truncate(time.Second)
	}
	if _, err := auth.NewIdentity(auth.CredentialPrefix, name, groups); err != nil {
		return "", nil, exit.With(exit.Usage, err)
	}
	entry, err = yaml.Marshal([]auth.CredentialEntry{e})
	return credential, entry, err
}

// addEntry adds an entry at the end of a credentials file, which nobody else may read or write.
func addEntry(file, entry string) error {
	return rewrite.File("the credentials file", file, func(text []byte, info os.FileInfo) ([]byte, error) {
		if info != nil {
			if err := follow.CheckPrivate(file, info); err != nil {
				return nil, err
			}
		}
		switch {
		case len(text) == 0:
			text = []byte("credentials:\n")
		case text[len(text)-1] != '\n':
			text = append(text, '\n')
		}
		text = append(text, entry...)
		if _, err := auth.ParseCredentials(text); err != nil {
			return nil, fmt.Errorf("%s: the entry cannot be added at its end; add it by hand (%w)", file, err)
		}
		return text, nil
	})
}
