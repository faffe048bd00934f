package lock

import (
	"errors"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

var (
	// ErrLost wraps the cause when a runner has lost its lock. FromGroup finds it in the error of an ifrit group. If
	// somebody else ended the claim, the cause is a models.ClaimEndedError, which says who did it, how and why.
	ErrLost = base.ErrLost
	// ErrTimeUp is the cause of a loss: no renewal succeeded within the trust window. It is
	// wrapped around the error of the last attempt.
	ErrTimeUp = base.ErrTimeUp
	// ErrTokenChanged is the cause of a loss: the grant had ended, and the same owner was granted the lock again.
	ErrTokenChanged = base.ErrTokenChanged
	// ErrRolledBack is the cause of a loss: the server knows only older states of the resource than this client, so its
	// database was rolled back.
	ErrRolledBack = models.ErrRolledBack
	// ErrReleased is the error of a Hold that was released, and the cause of the end of its context.
	ErrReleased = base.ErrReleased
	// ErrSessionEnded is why a session is over: a server ended it, because its TTL had passed, or
	// because an administrator reset it.
	ErrSessionEnded = base.ErrSessionEnded
	// ErrClosed is returned by methods of a closed Session or Client.
	ErrClosed = base.ErrClosed
	// ErrTimeout is the error of a command that was not answered within WithCommandTimeout. It may have been carried
	// out, or may still be: see the session's Status.
	ErrTimeout = base.ErrTimeout
	// ErrNotLocked is returned by Unlock if the lock is not held.
	ErrNotLocked = errors.New("not locked")
)
