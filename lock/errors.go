package lock

import (
	"errors"
	"fmt"

	"github.com/locket-service/locket/models"
)

var (
	// ErrLost is what a runner ends with when its lock is lost, wrapped around the cause. FromGroup finds it in the
	// error of an ifrit group.
	ErrLost = errors.New("the lock was lost")
	// ErrTimeUp is the cause of a loss: no renewal succeeded within the trust window. It is
	// wrapped around the error of the last attempt.
	ErrTimeUp = errors.New("the lease was not renewed in time")
	// ErrTokenChanged is the cause of a loss: the grant had ended, and the lock was granted to
	// the same owner anew.
	ErrTokenChanged = errors.New("the grant had ended")
	// ErrReleased is the error of a Hold that was released, and the cause of the end of its context.
	ErrReleased = errors.New("the lock was released")
	// ErrSessionEnded is why a session is over: a server ended it, because its TTL had passed, or
	// because an administrator reset it.
	ErrSessionEnded = errors.New("the session has ended")
	// ErrClosed is the error of what is asked of a Session or a Client that was closed.
	ErrClosed = errors.New("closed by its user")
	// ErrTimeout is the error of a command that was not answered within WithCommandTimeout. It
	// may have been carried out, or may still be: the session's Status says so.
	ErrTimeout = errors.New("the command was not answered in time")
	// ErrNotLocked is the error of Unlock for what is not locked.
	ErrNotLocked = errors.New("not locked")
)

// withHolder returns an error such that errors.Is finds what it is, and whose text names the
// holder if the server did.
func withHolder(err error) error {
	if holder := models.ErrorInfoOf(err).GetMetadata()["holder"]; holder != "" {
		return fmt.Errorf("%w: held by %q", models.FromWire(err), holder)
	}
	return models.FromWire(err)
}
