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
	// Unclear: the request may have been executed, or not.
	Unclear Verdict = iota
	// Ended: another owner holds it, or the grant to renew or release has ended.
	Ended
	// Waiting: the claim waits in the queue.
	Waiting
	// Missed: the claim was active, and expired before this client knew; or it was aborted while this client was cut
	// off. A new claim is needed.
	Missed
	// Permanent: the request is wrong, or its connection was closed, and it will fail again.
	Permanent
	// Denied: the caller is not authenticated, or may not do this.
	Denied
)

// Classify returns the meaning of an error of any request.
func Classify(err error) Verdict {
	switch {
	case models.ReasonOf(err) == models.ReasonCredentialsEnded:
		return Unclear // others may be there next time
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

// MaxWhy is how long a client may ask how a claim has ended before it reports the loss.
const MaxWhy = time.Second

// MaxAttempt bounds a call that does not wait in the queue, whatever the TTL: a working server answers or refuses
// sooner.
const MaxAttempt = 30 * time.Second

// AttemptTimeout is how long a call may last that does not wait in the queue. Three of them fit into the
// TTL, so a renewal that gets no answer leaves time for another.
func AttemptTimeout(ttl time.Duration) time.Duration { return min(ttl/3, MaxAttempt) }
