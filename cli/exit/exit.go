package exit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The statuses with which the program ends. They are only added to: scripts look at them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2 // a flag, an argument or a value is wrong
	exitHeld        = 3 // somebody else holds it, or comes first
	exitNotFound    = 4 // nobody holds it; there is no such claim
	exitInterrupted = 130
)

// exitError says with which status the program ends. Nothing is printed when err is nil.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError returns an error for a command line that is wrong.
func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// finish says what went wrong, in one line, and returns the status to end with.
func finish(ctx context.Context, stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	exit := &exitError{status: exitFailure, err: err}
	if !errors.As(err, &exit) && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
		exit = &exitError{exitInterrupted, err}
	}
	if exit.err != nil {
		fmt.Fprintln(stderr, "locket:", oneLine(err.Error()))
	}
	return exit.status
}

// oneLine joins the lines of a text, and leaves nothing in it that moves a terminal's cursor.
func oneLine(text string) string {
	return printable(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
}
