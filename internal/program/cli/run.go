package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/run"
	locklib "github.com/locket-service/locket/lock"
)

func newRunCommand() *cobra.Command {
	var (
		o      run.Options
		noWait bool
	)
	cmd := &cobra.Command{
		Use:   "run NAME... [flags] -- COMMAND ARG...",
		Short: "Run a command while holding one or more locks",
		Long: `Run a command while holding one or more locks.

It waits for the lock, first come, first served, runs the command, renews the lock meanwhile, and releases it as soon as
the command and everything it started have ended. Processes that the command leaves behind (on Linux also daemons) are
killed, or with --leave stay, without the lock. There is no shell unless COMMAND is one, or is a script without #!. The
command has the standard streams, and these variables: LOCKET_NAME, LOCKET_TOKEN (the fencing token), LOCKET_ID (of the
claim), and the settings of the connection (such as LOCKET_ADDRESS), so that a locket in it reaches the same servers.

Several locks are taken one after the other, in the order of their names, so that two such commands never wait for each
other; the command runs with all of them, or not at all. LOCKET_NAME, LOCKET_TOKEN and LOCKET_ID then have one line for
each lock, in that order.

The command runs in its own process group. INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to it.
After TERM it has --grace to end; then it is killed. The same happens when the lock is lost. If renewals fail, the
command gets TERM after three quarters of the TTL (later with a short --grace) and KILL after nine tenths, so that it
has ended before another process gets the lock. A long --grace therefore needs a --ttl about seven times as long, like
the defaults. Ctrl-Z also stops the renewals: after three quarters of the TTL the command is ended.

Status: the command's own; 128 plus the number of the signal that ended the command, or the wait; 123 the lock was lost,
and the command stopped; 124 (--conflict-exit-code) the lock was not acquired in time, and the command did not run; 125
Locket failed; 126 the command cannot be executed; 127 the command was not found.`,
		Example: `  # from cron, on many machines: one of them makes the report, the others do nothing
  locket run nightly-report --no-wait -- make-report --yesterday
  # one deployment at a time; wait up to 10 minutes for the others
  locket run deploy/shop --wait 10m --ttl 1m --value 'build 17' -- ./deploy.sh production
  # readers share, a writer is alone
  locket run index --shared -- sh -c 'search --token "$LOCKET_TOKEN" | tee found.txt'
  locket run index -- rebuild-index
  # both locks, or none
  locket run accounts/1 accounts/2 --wait 1m -- transfer 1 2`,
		Args:              cobra.ArbitraryArgs, // runCommand checks them
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			dial := func() (*connect.Connection, error) { return connect.Dial(cmd) }
			for flag, life := range map[string]func(string, run.Dial) error{run.ReaperFlag: run.Reaper, run.GuardFlag: run.Guard} {
				if value := cmd.Flag(flag).Value.String(); value != "" {
					return run.Complain(cmd.ErrOrStderr(), life(value, dial))
				}
			}
			return run.Complain(cmd.ErrOrStderr(), runCommand(cmd, args, o, noWait, dial))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Shared, "shared", false, "share the lock with others who share it")
	flags.DurationVar(&o.Wait, "wait", 0, "how long to wait for all locks together; 0: not at all (default for ever)")
	flags.BoolVar(&noWait, "no-wait", false, "the same as --wait 0")
	flags.DurationVar(&o.TTL, "ttl", time.Minute, "how long the lock lasts without renewal")
	flags.DurationVar(&o.WaitTTL, "wait-ttl", locklib.DefaultWaitTTL, "how long a waiting claim stays in the queue while the server does not hear from it; 0: for ever")
	flags.StringVar(&o.Owner, "owner", "", "the owner that others see (default HOST/PROCESS/RANDOM)")
	flags.StringVar(&o.Value, "value", "", "text that others see with the lock")
	flags.DurationVar(&o.Grace, "grace", 9*time.Second, "how long after TERM the command is killed")
	flags.BoolVar(&o.Leave, "leave", false, "let processes that the command leaves behind run on, without the lock")
	flags.IntVar(&o.ConflictStatus, "conflict-exit-code", run.NotAcquired, "the status when the lock is not acquired")
	flags.BoolVarP(&o.Verbose, "verbose", "v", false, "print the holder and the place in the queue, also without a terminal")
	for _, flag := range []string{run.ReaperFlag, run.GuardFlag} {
		flags.String(flag, "", "")
		_ = flags.MarkHidden(flag)
	}
	connect.AddFlags(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return run.Complain(cmd.ErrOrStderr(), exit.With(run.Failure, withHint(cmd, flagError(cmd, err))))
	})
	return cmd
}

// runCommand takes the command line, and runs its command.
func runCommand(cmd *cobra.Command, args []string, o run.Options, noWait bool, dial run.Dial) error {
	switch {
	case cmd.ArgsLenAtDash() < 1 || len(args) == cmd.ArgsLenAtDash():
		return errors.New(`a NAME, two dashes and a COMMAND are needed: locket run NAME... -- COMMAND ARG...; see "locket run --help"`)
	case noWait && cmd.Flag("wait").Changed && o.Wait != 0:
		return errors.New("--wait and --no-wait exclude each other")
	}
	o.Names, o.Words = args[:cmd.ArgsLenAtDash()], args[cmd.ArgsLenAtDash():]
	o.Forever = !cmd.Flag("wait").Changed && !noWait
	if o.Owner == "" {
		o.Owner = locklib.UniqueOwner()
	}
	return run.Run(o, dial, cmd.ErrOrStderr())
}
