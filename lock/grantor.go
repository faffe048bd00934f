package lock

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// grantor asks the server for what a keeper keeps.
type grantor interface {
	// take gains the grant, or, with its token, renews it. It returns the token, and the time
	// for which the grant lasted when the server answered. When leave is done, it waits for
	// no turn any longer.
	take(ctx, leave context.Context, token uint64) (uint64, time.Duration, error)
	// release ends the grant with a token; with 0 whatever take may have left.
	release(ctx context.Context, token uint64) error
	// exact reports whether release with a token can end no other grant than that one.
	exact(token uint64) bool
	// watch returns how the grant with a token has ended, as soon as that is known without a renewal; nil when
	// the context is done, or only a renewal shows it. It may call look to have one made now.
	watch(ctx context.Context, token uint64, look func()) error
	// timeout is how long one call of take may last.
	timeout(token uint64) time.Duration
	// classify returns what an error of take or release means.
	classify(err error) verdict
	// next returns the grantor of the next run, or of the next try after missed.
	next() grantor
	// id is that of the claim, "" for a lock.
	id() string
}

// verdict is what an answer of the server means.
type verdict int

const (
	// unclear: the request may have been carried out, or not.
	unclear verdict = iota
	// ended: another owner holds it, or what was to be renewed or released has ended.
	ended
	// waiting: the claim waits for its turn.
	waiting
	// missed: the claim was active, and expired before anybody knew; or it was aborted while it
	// waited and nobody could ask about it. It needs a new one.
	missed
	// permanent: the request is wrong, and will fail again.
	permanent
	// denied: the caller is not known, or must not do this.
	denied
)

// maxAttempt bounds a call that waits for no turn, however long the TTL is: the server answers
// or refuses sooner, so the connection is stuck or the server is.
const maxAttempt = 30 * time.Second

// attemptTimeout is how long a call may last that waits for no turn. Three of them fit into the
// TTL, so a renewal that gets no answer leaves time for another.
func attemptTimeout(ttl time.Duration) time.Duration { return min(ttl/3, maxAttempt) }

// classify returns what an error of any request means.
func classify(err error) verdict {
	if models.ReasonOf(err) == models.ReasonCredentialsEnded {
		return unclear // others may be there by now
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented:
		return permanent
	case codes.Unauthenticated, codes.PermissionDenied:
		return denied
	default:
		return unclear
	}
}
