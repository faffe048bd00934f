package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/tedsuo/ifrit"
	"google.golang.org/protobuf/proto"

	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// The statuses with which locket run ends, besides that of its command.
const (
	runLost          = 123
	runNotAcquired   = 124
	runFailure       = 125
	runNotExecutable = 126
	runNotFound      = 127
	runSignal        = 128 // and the number of the signal
)

// run is one run of a command while a lock is held.
//
// Three processes take part. This one, whose parent knows it, keeps the lock and passes
// signals on. It starts a guard, which starts the command: in a process group of its own, and
// as the one to which all that the command leaves behind is handed (runGuard). Whichever of
// the two is killed, the other one stops the command.
type run struct {
	cmd          *cobra.Command
	name         string
	words        []string // the command and its arguments
	path         string   // where the command is
	owner, value string
	shared       bool
	// patient: it waits for ever. Otherwise it waits so long.
	patient    bool
	wait       time.Duration
	ttl, grace time.Duration
}

func newRunCommand() *cobra.Command {
	r := &run{}
	var noWait bool
	cmd := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND ARG...",
		Short: "Run a command while holding a lock",
		Long: `Run a command while holding a lock.

It waits for the lock, in the order of those who came, runs the command, renews the lock
meanwhile, and gives it back as soon as the command has ended, together with all that it
left running (on Linux also what has made itself a daemon). There is no shell unless
COMMAND is one. The command has the standard streams, and in its environment
LOCKET_NAME, LOCKET_TOKEN (the fencing token), LOCKET_ID (of the claim), LOCKET_ADDRESS.

It is in a process group of its own, which gets INT, TERM, HUP, QUIT, USR1, USR2, WINCH,
TSTP and CONT when this program gets them. After TERM it has the time of --grace to end,
then it gets KILL. The same happens when the lock is lost, and before it could be: when
three quarters of the TTL have passed without a renewal, the command gets TERM (later if
--grace is short), and after nine tenths KILL, so that it has ended before the next one has
the lock. A long --grace therefore needs a long --ttl, of seven times as much. Ctrl-Z
stops the renewals, too: who comes back after three quarters of the TTL finds the
command ended.

Status: that of the command; 128 and its number when a signal ended the command, or the
wait; 123 the lock was lost, and the command stopped; 124 the lock was not to be had in
time, and the command not run; 125 Locket has failed; 126 the command cannot be executed;
127 there is no such command.`,
		Example: `  # from cron, on many machines: one of them makes the report, the others do nothing
  locket run nightly-report --no-wait -- make-report --yesterday
  # one deployment at a time; wait up to 10 minutes for that of the others
  locket run deploy/shop --wait 10m --ttl 1m --value 'build 17' -- ./deploy.sh production
  # readers share, a writer has it for itself
  locket run index --shared -- sh -c 'search --token "$LOCKET_TOKEN" | tee found.txt'
  locket run index -- rebuild-index`,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.BoolVar(&r.shared, "shared", false, "share the lock with others who share it")
	flags.DurationVar(&r.wait, "wait", 0, "how long to wait for the lock; 0 is not at all (default for ever)")
	flags.BoolVar(&noWait, "no-wait", false, "the same as --wait 0")
	flags.DurationVar(&r.ttl, "ttl", locklib.DefaultTTL, "how long the lock is held without being renewed")
	flags.StringVar(&r.owner, "owner", "", "who others see holding the lock (default host name and process id)")
	flags.StringVar(&r.value, "value", "", "what others are to see with the lock")
	flags.DurationVar(&r.grace, "grace", 10*time.Second, "how long after TERM the command gets KILL")
	flags.String(guardFlag, "", "")
	_ = flags.MarkHidden(guardFlag)
	addConnection(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return complain(cmd, &exitError{runFailure, flagError(cmd, err)})
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if pipes := cmd.Flag(guardFlag).Value.String(); pipes != "" {
			return complain(cmd, runGuard(pipes, args))
		}
		r.cmd, r.patient = cmd, !cmd.Flag("wait").Changed && !noWait
		if err := r.take(args, noWait); err != nil {
			return complain(cmd, err)
		}
		return complain(cmd, r.run())
	}
	return cmd
}

// take looks at the command line.
func (r *run) take(args []string, noWait bool) error {
	dash := r.cmd.ArgsLenAtDash()
	switch {
	case dash != 1 || len(args) == 1:
		return errors.New(`one NAME, two dashes and a COMMAND are needed: locket run NAME -- COMMAND ARG...; see "locket run --help"`)
	case args[0] == "":
		return errors.New("the name of the lock is empty")
	case r.wait < 0:
		return fmt.Errorf("--wait %s: must be 0 or more", r.wait)
	case noWait && r.cmd.Flag("wait").Changed && r.wait != 0:
		return errors.New("--wait and --no-wait exclude each other")
	case r.ttl < time.Second:
		return fmt.Errorf("--ttl %s: must be at least 1s", r.ttl)
	case r.grace < 0:
		return fmt.Errorf("--grace %s: must be 0 or more", r.grace)
	}
	r.name, r.words = args[0], args[1:]
	if r.owner == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--owner is needed, as the host has no name: %w", err)
		}
		r.owner = host + "-" + strconv.Itoa(os.Getpid())
	}
	var err error
	r.path, err = findCommand(r.words[0])
	return err
}

// complain says in one line what went wrong, unless it has no words, and returns the status
// to end with: runFailure unless err has another one.
func complain(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	if by := signalError(0); errors.As(err, &by) {
		return &exitError{status: runSignal + int(by)}
	}
	exit := &exitError{runFailure, err}
	if known := (*exitError)(nil); errors.As(err, &known) && known.status >= runLost || known != nil && known.err == nil {
		exit = known
	}
	if exit.err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "locket run:", oneLine(exit.err.Error()))
	}
	return &exitError{status: exit.status}
}

// say tells in one line what happens.
func (r *run) say(format string, args ...any) {
	fmt.Fprintln(r.cmd.ErrOrStderr(), "locket run:", oneLine(fmt.Sprintf(format, args...)))
}

// run waits for the lock, and runs the command.
func (r *run) run() error {
	c, err := dial(r.cmd)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	claim := &models.CreateClaimRequest{
		Resource: r.name, Owner: r.owner, Value: r.value, Id: uuid.NewString(),
		Ttl: proto.Float64(r.ttl.Seconds()), Mode: models.Mode_MODE_EXCLUSIVE,
	}
	if r.shared {
		claim.Mode = models.Mode_MODE_SHARED
	}
	signals := catchSignals()
	becomeReaper()
	leash := newLeash(c.LocketClient)
	keeper := locklib.NewClaimRunner(leash, claim)
	k := &kept{run: r, connection: c, claim: claim, leash: leash, keeper: keeper, process: ifrit.Background(keeper), signals: signals}
	k.ended = k.process.Wait()
	if err = k.awaitTurn(); err == nil {
		err = k.runCommand()
	}
	if by := signalError(0); errors.As(err, &by) && syscall.Signal(by) == syscall.SIGINT {
		controllingTerminal().dieOfInterrupt(k.unheard)
	}
	return err
}

// kept is a run with a claim.
type kept struct {
	*run
	*connection
	claim   *models.CreateClaimRequest
	leash   *leash
	keeper  *locklib.Runner
	process ifrit.Process
	ended   <-chan error
	// unheard: what was typed has reached the command alone.
	unheard bool
	signals chan os.Signal
}

// giveBack gives the claim back, or withdraws it, which may take seconds while no server can
// be reached, but not if none ever was. Of another signal it dies.
func (k *kept) giveBack() error {
	k.process.Signal(os.Interrupt)
	var enough <-chan time.Time
	if !isClosed(k.leash.isAnswered) {
		enough = time.After(time.Second)
	}
	for {
		select {
		case err := <-k.ended:
			_ = err // lost meanwhile, which is as good
			return nil
		case <-enough:
			return nil
		case sig := <-k.signals:
			if deadly(sig) {
				return signalled(sig)
			}
		}
	}
}

// environment returns that of the command.
func (k *kept) environment(token uint64) []string {
	own := []string{
		"LOCKET_NAME=" + k.name, "LOCKET_TOKEN=" + strconv.FormatUint(token, 10),
		"LOCKET_ID=" + k.claim.GetId(), "LOCKET_ADDRESS=" + k.address(),
	}
	var env []string
	for _, variable := range os.Environ() {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case "LOCKET_NAME", "LOCKET_TOKEN", "LOCKET_ID", "LOCKET_ADDRESS":
		default:
			env = append(env, variable)
		}
	}
	return append(env, own...)
}

// endLost gives back a claim that the runner has given up, as far as that can be done at
// once: if the server was out of reach, others would wait for the end of its lease.
func (k *kept) endLost() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = k.EndClaim(ctx, &models.EndClaimRequest{Id: k.claim.GetId()})
}

// signalError is the signal because of which it ends.
type signalError syscall.Signal

func (e signalError) Error() string { return syscall.Signal(e).String() }

// signalled returns what to end with because of a signal.
func signalled(sig os.Signal) error {
	number, _ := sig.(syscall.Signal)
	return signalError(number)
}
