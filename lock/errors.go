package lock

import (
	"errors"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

var (
	// ErrLost is what a runner ends with when its lock is lost, wrapped around the cause. FromGroup finds it in the
	// error of an ifrit group. If somebody else ended the claim, the cause is a models.ClaimEndedError: how, why, and by whom.
	ErrLost = base.ErrLost
	// ErrTimeUp is the cause of a loss: no renewal succeeded within the trust window. It is
	// wrapped around the error of the last attempt.
	ErrTimeUp = base.ErrTimeUp
	// ErrTokenChanged is the cause of a loss: the grant had ended, and the lock was granted to
	// the same owner anew.
	ErrTokenChanged = base.ErrTokenChanged
	// ErrRolledBack is the cause of a loss: the server knows only older states of the resource than this client, so its
	// database was rolled back.
	ErrRolledBack = models.ErrRolledBack
	// ErrReleased is the error of a Hold that was released, and the cause of the end of its context.
	ErrReleased = base.ErrReleased
	// ErrSessionEnded is why a session is over: a server ended it, because its TTL had passed, or
	// because an administrator reset it.
	ErrSessionEnded = base.ErrSessionEnded
	// ErrClosed is the error of what is asked of a Session or a Client that was closed.
	ErrClosed = base.ErrClosed
	// ErrTimeout is the error of a command that was not answered within WithCommandTimeout. It
	// may have been carried out, or may still be: the session's Status says so.
	ErrTimeout = base.ErrTimeout
	// ErrNotLocked is the error of Unlock for what is not locked.
	ErrNotLocked = errors.New("not locked")
)
