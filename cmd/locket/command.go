package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

// newCommand returns the tree of commands.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "locket",
		Short: "A lock service: locks, claims that wait their turn, presences",
		Long: `Locket keeps processes on many machines from doing the same thing at once,
tells who does it now, and passes it on when that one dies.

  locket server                          serve, on SQLite in ./locket.db
  locket lock NAME --owner ME --ttl 30s  take a lock, or renew it
  locket fetch NAME                      who holds it?
  locket release NAME --owner ME         give it back`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newServerCommand(), newLockCommand(), newFetchCommand(), newReleaseCommand())
	return root
}

// version is that of the module, or of the commit, that the program was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
