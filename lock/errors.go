package lock

import (
	"errors"

	"github.com/tedsuo/ifrit/grouper"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

var (
	// ErrLost is the error of a lock that was held and is lost. It wraps the cause. If somebody else ended the claim,
	// the cause is a models.ClaimEndedError, which says who ended it, how and why. FromGroup finds ErrLost in the
	// error of an ifrit group.
	ErrLost = base.ErrLost
	// ErrTimeUp is the cause of a loss: no renewal succeeded within the trust window. It comes with the error of the
	// last attempt.
	ErrTimeUp = base.ErrTimeUp
	// ErrTokenChanged is the cause of a loss: the grant had ended, and the same owner was granted the lock again.
	ErrTokenChanged = base.ErrTokenChanged
	// ErrRolledBack is the cause of a loss: the client has a newer token than the server, because the database was
	// rolled back.
	ErrRolledBack = models.ErrRolledBack
	// ErrReleased is the error of a Hold that was released, and the cause of the end of its context.
	ErrReleased = base.ErrReleased
	// ErrSessionEnded means that a server ended the session: its TTL had passed, or an administrator ended it.
	ErrSessionEnded = base.ErrSessionEnded
	// ErrClosed is returned by methods of a closed Session or Client.
	ErrClosed = base.ErrClosed
	// ErrTimeout is the error of a command that was not answered within WithCommandTimeout. The command may still be
	// executed: see Session.Status.
	ErrTimeout = base.ErrTimeout
	// ErrNotLocked is returned by Unlock if the lock is not held.
	ErrNotLocked = errors.New("not locked")
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
