package cli

import (
	"fmt"
	"os"
	"strings"

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
		Short: "Back up a database, while servers use it",
		Long: `Back up a database: all live and ended claims, sessions, and the state of the fencing tokens at one moment. Servers may
go on using the database. If a server keeps its data in a folder, run this on its machine, as a user that may read the
folder.

The backup is written beside FILE, checked, and renamed to FILE when it is complete. Other users may not read it.
"locket restore" fills an empty database from it.`,
		Example: `  locket backup locket.backup
  locket backup nightly.backup --database 'mysql:locket@tcp(127.0.0.1:3306)/locket' --database-password-file db.password`,
		RunE: printing(func(cmd *cobra.Command, args []string) (show.View, error) {
			if err := databaseOf(cmd, &c); err != nil {
				return nil, err
			}
			checked, err := server.Backup(cmd.Context(), c, args[0])
			if err != nil {
				return nil, err
			}
			return newCheckView(args[0], checked), nil
		}),
	}
	addDatabaseFlags(cmd.Flags(), &c)
	show.AddOutput(cmd)
	return cmd
}

func newRestoreCommand() *cobra.Command {
	c, o := server.DefaultConfig(), restoring{}
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Fill an empty database from a backup",
		Long: `Fill an empty database, or create a folder, from a backup. The backup is checked first. An interrupted restore leaves
nothing that a server would serve.

Everything since the backup is lost, and what clients have done since is unknown. Fencing tokens continue above all that
may have been given out. Live claims and sessions start their TTL again, so that their holders can renew them. Until the
longest known TTL has passed, nothing is granted, because a client that was granted something after the backup may still
hold it. --quarantine sets another time. If no client is left, --revoke-all ends all claims instead.`,
		Example: `  locket restore nightly.backup --database embedded:/var/lib/locket
  locket restore nightly.backup --database 'mysql:locket@tcp(127.0.0.1:3306)/locket' --quarantine 5m`,
		RunE: printing(func(cmd *cobra.Command, args []string) (show.View, error) {
			if err := databaseOf(cmd, &c); err != nil {
				return nil, err
			}
			options, err := o.of(cmd)
			if err != nil {
				return nil, err
			}
			quarantined, err := server.Restore(cmd.Context(), c, args[0], options)
			if err != nil {
				return nil, err
			}
			return restoreView{c.DatabaseName(), jsonview.Seconds(quarantined.Seconds())}, nil
		}),
	}
	addDatabaseFlags(cmd.Flags(), &c)
	o.addFlags(cmd.Flags())
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
	return v.Database + " is restored\n" + grantedAfter(v.Quarantine)
}

func newCheckCommand() *cobra.Command {
	c := server.DefaultConfig()
	cmd := &cobra.Command{
		Use:   "check [BACKUP]",
		Short: "Check a database or a backup for contradictions",
		Long: `Check a backup, or a database at one moment, for contradictions between holders, queues, counters, fencing tokens,
versions, sessions and indexes. It changes nothing, and servers may go on using the database. It also prints a hash of
the live state, which is the same for a database and its backup.

Status: 0 no contradiction; 1 contradictions; 2 the database could not be read, the result could not be printed, or the
command line is wrong.`,
		Example: `  locket check
  locket check nightly.backup
  locket check --database 'mysql:locket@tcp(127.0.0.1:3306)/locket' -o json`,
		RunE: printing(func(cmd *cobra.Command, args []string) (show.View, error) {
			if err := databaseOf(cmd, &c); err != nil {
				return nil, err
			}
			what, check := c.DatabaseName(), func() (server.Checked, error) { return server.Check(cmd.Context(), c) }
			if len(args) > 0 {
				if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
					return nil, exit.With(checkFailed, fmt.Errorf("%s: is a folder, and no backup; to check a server's data, give --data %s", args[0], args[0]))
				}
				what, check = args[0], func() (server.Checked, error) { return server.CheckBackup(cmd.Context(), args[0]) }
			}
			checked, err := check()
			if err == nil {
				err = show.Print(cmd, newCheckView(what, checked))
			}
			switch {
			case err != nil:
				return nil, &exit.Error{Status: checkFailed, Err: err, Ran: true}
			case checked.Found > 0:
				return nil, exit.With(checkDisagrees, nil)
			}
			return nil, nil
		}),
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
		Checked: what, Engine: k.Head.Engine, Taken: k.Head.Taken.Std().Format(jsonview.TimeFormat), Active: k.Active, Waiting: k.Waiting, Ended: k.History,
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
