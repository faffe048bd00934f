package session

import (
	"errors"
	"fmt"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Why a session is no longer served here. claim.ErrSessionEnded and committer.ErrStopping are other reasons.
var (
	// ErrMoved: another stream, here or at another server, has attached the session.
	ErrMoved = errors.New("the session was resumed over another stream")
	// ErrDetached: this server no longer keeps the session alive. It may be resumed.
	ErrDetached = errors.New("the session is no longer attached to this server")
	// ErrSilent: the client has sent nothing for half of the TTL. The session may be resumed.
	ErrSilent = errors.New("nothing was heard from the session for half of its TTL")
	// ErrTooSlow: the client does not read its events. The session may be resumed.
	ErrTooSlow = errors.New("the client does not read its events")
	// ErrClosed: the client has closed the session.
	ErrClosed = errors.New("the session was closed")
)

// ErrTooMany is returned by Open when Config.Sessions are attached to this server.
var ErrTooMany = errors.New("too many sessions are attached to this server")

// ModeError refuses a Lock in another mode than the session's claim on the resource.
type ModeError struct{ Units claim.Units }

func (e *ModeError) Error() string {
	return fmt.Sprintf("the session holds the resource, or waits for it, in %s mode; unlock it first", e.Units)
}
