package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/printable"
)

// The exit statuses of `locket run`, besides its command's own, and exit.Signal and the number of a signal.
const (
	Lost          = 123
	NotAcquired   = 124
	Failure       = 125
	NotExecutable = 126
	NotFound      = 127
)

// Options are the command line of a run.
type Options struct {
	// Names are the names of the locks: at least one, none of them empty or given twice. They are taken in the order of their bytes, so
	// that two commands never wait for each other.
	Names []string
	// Words are the command and its arguments; at least one.
	Words []string
	// Others see Owner and Value with the locks.
	Owner, Value string
	// Shared shares the locks with others who share them.
	Shared bool
	// Wait is how long to wait for all locks together, unless Forever: 0 is not at all.
	Wait    time.Duration
	Forever bool
	// TTL is how long a lock is held without being renewed; at least 1 s.
	TTL time.Duration
	// WaitTTL is for how long the places in the lines are kept when no server hears from this program; 0 for ever, else at least 1 s.
	WaitTTL time.Duration
	// Grace is how long after TERM the command gets KILL; 0 or more.
	Grace time.Duration
	// Leave keeps processes running that the command leaves when it ends by itself: a daemon, which then runs without the locks.
	Leave bool
	// Verbose says whom it waits for also where nobody watches: on a terminal it always does, on one line.
	Verbose bool
	// ConflictStatus is the status to end with if the locks are not acquired: 1 to 255, by default NotAcquired.
	ConflictStatus int
}

// Dial connects to the servers.
type Dial func() (*connect.Connection, error)

func (o Options) validate() error {
	switch {
	case slices.Contains(o.Names, ""):
		return errors.New("the name of the lock is empty")
	case len(slices.Compact(slices.Sorted(slices.Values(o.Names)))) < len(o.Names):
		return errors.New("the same lock is named twice")
	case o.WaitTTL != 0 && o.WaitTTL < time.Second:
		return fmt.Errorf("--wait-ttl %s: must be at least 1s, or 0 for ever", o.WaitTTL)
	case o.Wait < 0:
		return fmt.Errorf("--wait %s: must be 0 or more", o.Wait)
	case o.TTL < time.Second:
		return fmt.Errorf("--ttl %s: must be at least 1s", o.TTL)
	case o.ConflictStatus < 1 || o.ConflictStatus > 255:
		return fmt.Errorf("--conflict-exit-code %d: must be 1 to 255", o.ConflictStatus)
	case o.Grace < 0:
		return fmt.Errorf("--grace %s: must be 0 or more", o.Grace)
	}
	return nil
}

// noWait reports whether a lock must be free at once.
func (o Options) noWait() bool { return !o.Forever && o.Wait == 0 }

// names returns the names of the locks as they are written in a message.
func (o Options) names() string {
	quoted := make([]string, len(o.Names))
	for i, name := range o.Names {
		quoted[i] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}

// run is one run of a command while a lock is held.
type run struct {
	Options
	path string // where the command is
}

// Run runs a command while locks are held, and returns when nothing of it is left, and the locks are
// released. dial reaches the servers; it is called only when the command exists. What happens
// is written to stderr, one line each. The error is for Complain. Run may end this process by SIGINT.
func Run(o Options, dial Dial, stderr io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	o.Names = slices.Sorted(slices.Values(o.Names))
	path, err := findCommand(o.Words[0])
	if err != nil {
		return err
	}
	c, err := dial()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	k := &kept{run: &run{Options: o, path: path}, Set: hold.NewSet(c, hold.NewMessages(stderr), len(o.Names)), signals: catchSignals()}
	return k.runLocked()
}

// Complain writes in one line what went wrong, unless err has no text, and returns the exit
// status as an error: Failure unless err has another one of this package. It returns nil for nil.
func Complain(stderr io.Writer, err error) error {
	if err == nil {
		return nil
	}
	if sig, signalled := signalOf(err); signalled {
		return exit.With(exit.Signal+int(sig), nil)
	}
	end := endOf(err)
	if end.Err != nil {
		fmt.Fprintln(stderr, "locket:", printable.OneLine(end.Err.Error()))
	}
	return exit.With(end.Status, nil)
}

// endOf returns the exit status and the text for an error. An error of a server has the status of another command, below Lost, and ends
// this one with Failure; the caller's own ConflictStatus may be any.
func endOf(err error) *exit.Error {
	known, is := errors.AsType[*exit.Error](err)
	_, isConflict := errors.AsType[conflictError](err)
	if is && (isConflict || known.Status >= Lost || known.Err == nil) {
		return known
	}
	return &exit.Error{Status: Failure, Err: err}
}

// runLocked waits for the locks, and runs the command.
func (k *kept) runLocked() (err error) {
	becomeReaper()
	if err = k.acquire(); err == nil {
		err = k.runCommand()
	}
	if sig, _ := signalOf(err); sig == syscall.SIGINT {
		controllingTerminal().dieOfInterrupt(k.hiddenInterrupt)
	}
	return err
}

// signalError is the signal that ended the run.
type signalError syscall.Signal

func (e signalError) Error() string { return syscall.Signal(e).String() }

// signalOf returns the signal that ended the run, if one did.
func signalOf(err error) (sig syscall.Signal, signalled bool) {
	by, signalled := errors.AsType[signalError](err)
	return syscall.Signal(by), signalled
}

// signalled returns the error of a run that a signal ended.
func signalled(sig os.Signal) error {
	number, _ := sig.(syscall.Signal)
	return signalError(number)
}
