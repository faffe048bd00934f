// Package exit has the exit statuses of the program, and the errors that carry them.
//
// An *Error sets the exit status; any other error ends the program with Failure. Finish turns what a command returned into one line and a
// status. Scripts depend on the statuses: new ones may be added, none changes. `locket run` has some of its own, which are in package run.
package exit

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/locket-service/locket/internal/program/cli/printable"
)

// The exit statuses.
const (
	OK          = 0
	Failure     = 1
	Usage       = 2 // a flag, an argument or a value is wrong
	Held        = 3 // another owner holds it, or comes first
	NotFound    = 4 // nobody holds it; no such claim
	Lost        = 5 // it was held, and lost before it was released
	Denied      = 6 // the server does not know who calls, or does not allow it
	Degraded    = 7 // the service answers, and is degraded
	Interrupted = 130
	Signal      = 128 // and the number of the signal that ended a command
)

// Error is an error with the exit status of the program. Nothing is printed when Err is nil.
type Error struct {
	Status int
	Err    error
	// Ran says that the command line is right although the status is Usage, so that nobody needs its help.
	Ran bool
}

// With returns an error that ends the program with a status, and says err if that is not nil.
func With(status int, err error) error { return &Error{Status: status, Err: err} }

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

// Unwrap returns the error that the status is for, nil if none.
func (e *Error) Unwrap() error { return e.Err }

// Usagef returns an error for a command line that is wrong.
func Usagef(format string, args ...any) error {
	return With(Usage, fmt.Errorf(format, args...))
}

// Finish prints what went wrong, in one line, and returns the exit status. ctx is the command's: when it is done, a canceled call means
// that the command was interrupted.
func Finish(ctx context.Context, stderr io.Writer, err error) int {
	if err == nil {
		return OK
	}
	exit := &Error{Status: Failure, Err: err}
	if !errors.As(err, &exit) && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
		exit = &Error{Status: Interrupted, Err: err}
	}
	if exit.Err != nil {
		fmt.Fprintln(stderr, "locket:", printable.OneLine(err.Error()))
	}
	return exit.Status
}
