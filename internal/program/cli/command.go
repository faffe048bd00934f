package cli

import (
	"os"

	"github.com/spf13/cobra"
)

// The groups of commands in the help.
const (
	groupLocks    = "locks"
	groupClaims   = "claims"
	groupSessions = "sessions"
	groupServer   = "server"
)

// newCommand returns the tree of commands.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "locket",
		Short: "A lock service: locks, claims that wait their turn, presences",
		Long: `Locket keeps processes on many machines from doing the same thing at once, shows which one does it now, and passes it on
when that process dies.`,
		Example: `  locket server                          # in one terminal: serve, with its data in ./locket-data
  locket lock demo --owner me --ttl 5m   # in another: take a lock, or renew it; prints its fencing token
  locket resource demo                   # its holder and its queue
  locket release demo --owner me         # release it`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		// Before each command.
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { warnOfVariables(cmd, os.Environ()) },
	}
	root.AddGroup(
		&cobra.Group{ID: groupLocks, Title: "Locks and presences:"},
		&cobra.Group{ID: groupClaims, Title: "Claims, which wait their turn:"},
		&cobra.Group{ID: groupSessions, Title: "Sessions, which have many claims on one heartbeat:"},
		&cobra.Group{ID: groupServer, Title: "The server:"},
	)
	addGroup(root, groupLocks, newLockCommand(), newRunCommand(), newElectCommand(), newFetchCommand(), newReleaseCommand(), newLocksCommand(), newPresencesCommand())
	addGroup(root, groupClaims, newClaimCommand(), newResourceCommand(), newExplainCommand(), newResourcesCommand(), newTopCommand(), newClaimsCommand(), newGetCommand(), newWatchCommand(), newRenewCommand(), newRevokeCommand(), newKeychainCommand())
	addGroup(root, groupSessions, newSessionsCommand(), newResetCommand())
	addGroup(root, groupServer, newServerCommand(), newStatusCommand(), newClusterCommand(), newBackupCommand(), newRestoreCommand(), newCheckCommand(), newContextCommand(), newCredentialCommand(), newRulesCommand(), newWhoAmICommand(), newCanICommand())
	root.AddCommand(newVersionCommand(), newOptionsCommand(), newManCommand())
	setUp(root)
	return root
}

func addGroup(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cmd.GroupID = group
	}
	root.AddCommand(commands...)
}
