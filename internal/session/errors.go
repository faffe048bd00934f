package session

import (
	"errors"
	"fmt"

	"github.com/locket-service/locket/internal/claim"
)

// Why a session is no longer attached to this server. claim.ErrSessionEnded is another reason.
var (
	// ErrMoved: it was attached over another stream, here or at another server.
	ErrMoved = errors.New("the session was resumed over another stream")
	// ErrDetached: this server no longer keeps it alive. It may be resumed.
	ErrDetached = errors.New("the session is no longer attached to this server")
	// ErrSilent: nothing was heard from the client for half of the TTL. It may be resumed.
	ErrSilent = errors.New("nothing was heard from the session for half of its TTL")
	// ErrTooSlow: the client does not read its events. It may be resumed.
	ErrTooSlow = errors.New("the client does not read its events")
	// ErrClosed: the client closed it.
	ErrClosed = errors.New("the session was closed")
)

// ErrTooMany is returned by Open when as many sessions are attached as may be.
var ErrTooMany = errors.New("too many sessions are attached to this server")

// ModeError refuses a Lock in another mode than that in which the session holds the resource, or
// waits for it.
type ModeError struct{ Mode claim.Mode }

func (e *ModeError) Error() string {
	return fmt.Sprintf("the session has the resource in %s mode; unlock it first", e.Mode)
}
