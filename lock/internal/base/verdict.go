package base

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

// Verdict is the meaning of a server's answer.
type Verdict int

const (
	// Unclear: the request may have been carried out, or not.
	Unclear Verdict = iota
	// Ended: another owner holds it, or the grant to renew or release has ended.
	Ended
	// Waiting: the claim waits in the queue.
	Waiting
	// Missed: the claim was active, and expired before anybody knew; or it was aborted while it
	// waited and nobody could ask about it. It needs a new one.
	Missed
	// Permanent: the request is wrong, or its connection was closed, and it will fail again.
	Permanent
	// Denied: the caller is not known, or must not do this.
	Denied
)

// Classify returns the meaning of an error of any request.
func Classify(err error) Verdict {
	switch {
	case models.ReasonOf(err) == models.ReasonCredentialsEnded:
		return Unclear // others may be there by now
	case models.ReasonOf(err) == models.ReasonDeadlock:
		return Permanent
	case errors.Is(err, conn.ErrClosed): // the connection of the caller, which may be closed while it is used
		return Permanent
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented:
		return Permanent
	case codes.Unauthenticated, codes.PermissionDenied:
		return Denied
	default:
		return Unclear
	}
}

// MaxWhy is how long a loss may be held back by the question how the claim has ended.
const MaxWhy = time.Second

// MaxAttempt bounds a call that does not wait in the queue, however long the TTL is: the server answers
// or refuses sooner, so the connection is stuck or the server is.
const MaxAttempt = 30 * time.Second

// AttemptTimeout is how long a call may last that does not wait in the queue. Three of them fit into the
// TTL, so a renewal that gets no answer leaves time for another.
func AttemptTimeout(ttl time.Duration) time.Duration { return min(ttl/3, MaxAttempt) }
