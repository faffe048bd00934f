package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/cli/connect"
	"github.com/locket-service/locket/cli/exit"
	"github.com/locket-service/locket/cli/printable"
	"github.com/locket-service/locket/ids"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// The statuses with which `locket run` ends, besides those of its command: exit.Signal and the
// number of a signal is the last of them.
const (
	Lost          = 123
	NotAcquired   = 124
	Failure       = 125
	NotExecutable = 126
	NotFound      = 127
)

// Options say what to run, and with which lock.
type Options struct {
	// Name is that of the lock. It must not be empty.
	Name string
	// Words are the command and its arguments; at least one.
	Words []string
	// Owner and Value are what others see of the lock.
	Owner, Value string
	// Shared shares the lock with others who share it.
	Shared bool
	// Wait is how long to wait for the lock, unless Forever: 0 is not at all.
	Wait    time.Duration
	Forever bool
	// TTL is how long the lock is held without being renewed; at least 1 s.
	TTL time.Duration
	// Grace is how long after TERM the command gets KILL; 0 or more.
	Grace time.Duration
}

func (o Options) validate() error {
	switch {
	case o.Name == "":
		return errors.New("the name of the lock is empty")
	case o.Wait < 0:
		return fmt.Errorf("--wait %s: must be 0 or more", o.Wait)
	case o.TTL < time.Second:
		return fmt.Errorf("--ttl %s: must be at least 1s", o.TTL)
	case o.Grace < 0:
		return fmt.Errorf("--grace %s: must be 0 or more", o.Grace)
	}
	return nil
}

// run is one run of a command while a lock is held.
type run struct {
	Options
	path   string // where the command is
	stderr io.Writer
}

// Run runs a command while a lock is held, and returns when nothing of it is left, and the lock is
// released. dial reaches the servers; it is called only when the command exists. What happens
// is written to stderr, one line each. The error is for Complain. Run may end this process by SIGINT.
func Run(o Options, dial func() (*connect.Connection, error), stderr io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	path, err := findCommand(o.Words[0])
	if err != nil {
		return err
	}
	c, err := dial()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	r := &run{Options: o, path: path, stderr: stderr}
	return r.with(c)
}

// Complain writes in one line what went wrong, unless err has no text, and returns the exit
// status as an error: Failure unless err has another one of this package. It returns nil for nil.
func Complain(stderr io.Writer, err error) error {
	if err == nil {
		return nil
	}
	if by := signalError(0); errors.As(err, &by) {
		return exit.With(exit.Signal+int(by), nil)
	}
	end := &exit.Error{Status: Failure, Err: err}
	if known := (*exit.Error)(nil); errors.As(err, &known) && known.Status >= Lost || known != nil && known.Err == nil {
		end = known
	}
	if end.Err != nil {
		fmt.Fprintln(stderr, "locket run:", printable.OneLine(end.Err.Error()))
	}
	return exit.With(end.Status, nil)
}

// say writes one line about what happens.
func (r *run) say(format string, args ...any) {
	fmt.Fprintln(r.stderr, "locket run:", printable.OneLine(fmt.Sprintf(format, args...)))
}

// with waits for the lock, and runs the command.
func (r *run) with(c *connect.Connection) (err error) {
	claim := &models.CreateClaimRequest{
		Resource: r.Name, Owner: r.Owner, Value: r.Value, Id: ids.NewClaim(),
		Ttl: proto.Float64(r.TTL.Seconds()), Mode: models.Mode_MODE_EXCLUSIVE,
	}
	if r.Shared {
		claim.Mode = models.Mode_MODE_SHARED
	}
	signals := catchSignals()
	becomeReaper()
	client := observe(c.LocketClient)
	keeper := locklib.NewClaimRunner(client, claim)
	k := &kept{run: r, Connection: c, claim: claim, observed: client, keeper: keeper, process: ifrit.Background(keeper), signals: signals}
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
	*connect.Connection
	claim    *models.CreateClaimRequest
	observed *observedClient
	keeper   *locklib.Runner
	process  ifrit.Process
	ended    <-chan error
	// unheard: what was typed has reached the command alone.
	unheard bool
	signals chan os.Signal
}

// release releases the claim, or withdraws it, which may take seconds while no server can be
// reached, but not if none ever was. Another signal ends it at once.
func (k *kept) release() error {
	k.process.Signal(os.Interrupt)
	var enough <-chan time.Time
	if !isClosed(k.observed.isAnswered) {
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
		"LOCKET_NAME=" + k.Name, "LOCKET_TOKEN=" + strconv.FormatUint(token, 10),
		"LOCKET_ID=" + k.claim.GetId(), "LOCKET_ADDRESS=" + k.Address(),
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

// endLost ends a claim that the runner has lost, as far as that can be done at
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
