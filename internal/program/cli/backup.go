package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/models/jsonview"
)

// The statuses of `locket check`, beside exit.OK.
const (
	checkDisagrees = 1
	checkFailed    = 2
)

func newBackupCommand() *cobra.Command {
	c := server.DefaultConfig()
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write all that a database holds into a file, while servers use it",
		Long: `Write all that a database holds at one moment into a file: claims that are live and that have ended, sessions, and what
fencing tokens follow from. Servers may use the database meanwhile. If a server keeps its data in a folder, take the
backup on its machine, as a user with read access to the folder.

The file is written beside FILE, checked, and takes its place when it is complete; other users may not read it. "locket
restore" fills an empty database from it.`,
		Example: `  locket backup locket.backup
  locket backup nightly.backup --database 'mysql:locket@tcp(127.0.0.1:3306)/locket' --database-password-file db.password`,
		Args: takes("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := databaseOf(cmd, &c); err != nil {
				return err
			}
			checked, err := server.Backup(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return show.Print(cmd, newCheckView(args[0], checked))
		},
	}
	addDatabaseFlags(cmd.Flags(), &c)
	show.AddOutput(cmd)
	return cmd
}

func newRestoreCommand() *cobra.Command {
	c, o := server.DefaultConfig(), server.RestoreOptions{}
	var quarantine time.Duration
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Fill an empty database from a backup",
		Long: `Fill an empty database, or a folder that is not there, from a backup. The backup is checked first, and what was
interrupted leaves nothing that a server would serve.

What has happened since the backup was taken is lost, and what its servers' clients still do is not known. Fencing
tokens go on above all that may have been given. Claims and sessions that were live begin their TTL anew, so that who
still holds one renews it. Until the longest TTL that is known has passed, nobody is granted anything, because a client
that was granted something after the backup may still hold it. --quarantine sets another time. If no client goes on,
--revoke-all ends all claims instead.`,
		Example: `  locket restore nightly.backup --database embedded:/var/lib/locket
  locket restore nightly.backup --database 'mysql:locket@tcp(127.0.0.1:3306)/locket' --quarantine 5m`,
		Args: takes("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := databaseOf(cmd, &c); err != nil {
				return err
			}
			if cmd.Flag("quarantine").Changed {
				o.Quarantine = &quarantine
			}
			switch {
			case o.RevokeAll && o.Quarantine != nil:
				return exit.Usagef("--revoke-all and --quarantine exclude each other")
			case quarantine < 0:
				return exit.Usagef("--quarantine: must be 0 or more")
			}
			quarantined, err := server.Restore(cmd.Context(), c, args[0], o)
			if err != nil {
				return err
			}
			return show.Print(cmd, restoreView{c.DatabaseName(), jsonview.Seconds(quarantined.Seconds())})
		},
	}
	addDatabaseFlags(cmd.Flags(), &c)
	cmd.Flags().DurationVar(&quarantine, "quarantine", 0, "for how long nobody is granted anything (default the longest TTL that is known, 1m at least)")
	cmd.Flags().BoolVar(&o.RevokeAll, "revoke-all", false, "end all claims and sessions, without a quarantine; only if no client goes on using its claims")
	cmd.Flags().Uint64Var(&o.Floor, "floor", 0, "a number that all fencing tokens from now on are above; needed where the clock is behind the backup")
	show.AddOutput(cmd)
	return cmd
}

// restoreView says for how long nobody is granted anything.
type restoreView struct {
	Database   string           `json:"database"`
	Quarantine jsonview.Seconds `json:"quarantine"`
}

func (v restoreView) Names() []string { return []string{v.Database} }

func (v restoreView) Text(show.Look) string {
	text := v.Database + " is restored\n"
	if long := v.Quarantine.Duration(); long > 0 {
		text += fmt.Sprintf("nobody is granted anything for %v after its first server has started\n", long)
	}
	return text
}

func newCheckCommand() *cobra.Command {
	c := server.DefaultConfig()
	cmd := &cobra.Command{
		Use:   "check [BACKUP]",
		Short: "Find what does not agree in a database or a backup",
		Long: `Read a backup, or a database at one moment, and report what does not agree: holders, lines of those who wait, counters,
fencing tokens, versions, sessions, indexes. It changes nothing, and servers may use the database meanwhile. It also
prints a hash of the live state: a database and a backup that hold the same have the same.

Status: 0 everything agrees; 1 something does not; 2 it could not be read, or the result not be printed, or the command
line is wrong.`,
		Example: `  locket check
  locket check nightly.backup
  locket check --database 'mysql:locket@tcp(127.0.0.1:3306)/locket' -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := databaseOf(cmd, &c); err != nil {
				return err
			}
			what, check := c.DatabaseName(), func() (server.Checked, error) { return server.Check(cmd.Context(), c) }
			if len(args) > 0 {
				what, check = args[0], func() (server.Checked, error) { return server.CheckBackup(cmd.Context(), args[0]) }
			}
			checked, err := check()
			if err != nil {
				return exit.With(checkFailed, err)
			}
			switch err := show.Print(cmd, newCheckView(what, checked)); {
			case err != nil:
				return exit.With(checkFailed, err)
			case checked.Found > 0:
				return exit.With(checkDisagrees, nil)
			}
			return nil
		},
	}
	addDatabaseFlags(cmd.Flags(), &c)
	show.AddOutput(cmd)
	return cmd
}

// checkView describes the content of a database or a backup, and its inconsistencies.
type checkView struct {
	Checked   string   `json:"checked"`
	Engine    string   `json:"engine"`
	Taken     string   `json:"taken"`
	Active    int      `json:"active"`
	Waiting   int      `json:"waiting"`
	Ended     int      `json:"ended"`
	Sessions  int      `json:"sessions"`
	Resources int      `json:"resources"`
	State     string   `json:"state"`
	Found     int      `json:"found"`
	Problems  []string `json:"problems"`
}

func newCheckView(what string, k server.Checked) checkView {
	return checkView{
		Checked: what, Engine: k.Head.Engine, Taken: k.Head.Taken.Std().Format("2006-01-02T15:04:05.000000Z07:00"), Active: k.Active, Waiting: k.Waiting, Ended: k.History,
		Sessions: k.Sessions, Resources: k.Resources, State: k.State(), Found: k.Found, Problems: append([]string{}, k.Problems...),
	}
}

func (v checkView) Names() []string { return []string{v.Checked} }

func (v checkView) Text(look show.Look) string {
	var text strings.Builder
	for _, line := range [][2]string{
		{"holds", printable.OneLine(v.Checked)},
		{"engine", v.Engine},
		{"taken", v.Taken},
		{"claims", fmt.Sprintf("%d active, %d waiting, %d ended", v.Active, v.Waiting, v.Ended)},
		{"sessions", fmt.Sprint(v.Sessions)},
		{"resources", fmt.Sprint(v.Resources)},
		{"state", v.State},
	} {
		text.WriteString(look.Field(line[0], line[1]))
	}
	if v.Found == 0 {
		return text.String() + "everything agrees\n"
	}
	fmt.Fprintf(&text, "%d things do not agree:\n", v.Found)
	for _, problem := range v.Problems {
		text.WriteString("  " + printable.OneLine(problem) + "\n")
	}
	if more := v.Found - len(v.Problems); more > 0 {
		fmt.Fprintf(&text, "  and %d more\n", more)
	}
	return text.String()
}
