package lock

import (
	"errors"

	"github.com/tedsuo/ifrit/grouper"
)

// FromGroup returns an error for errors.Is and errors.As: they then find the errors of an ifrit group's members,
// including groups within it. errors.Is(lock.FromGroup(err), lock.ErrLost) reports whether the group ended because a
// lock was lost. A grouper.ErrorTrace by itself hides them. Other errors, and nil, are returned unchanged.
func FromGroup(err error) error {
	var trace grouper.ErrorTrace
	if !errors.As(err, &trace) {
		return err
	}
	g := groupError{error: err}
	for _, exit := range trace {
		if exit.Err != nil {
			g.members = append(g.members, FromGroup(exit.Err))
		}
	}
	return g
}

// groupError is the error of a group, with the errors of its members.
type groupError struct {
	error
	members []error
}

func (e groupError) Unwrap() []error { return append([]error{e.error}, e.members...) }
