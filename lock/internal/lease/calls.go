package lease

import (
	"context"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
)

// calls are the requests that take, renew and release a lock: by Lock, or by claims.
type calls interface {
	// take gains the grant, or, with its token, renews it. It returns the token, and how long the grant lasts from the
	// server's answer. When leave is done, it stops waiting in the queue. It calls waiting when others come first.
	take(ctx, leave context.Context, token uint64, waiting func(holder string)) (uint64, time.Duration, error)
	// release ends the grant with a token; with 0, any grant that take may have left.
	release(ctx context.Context, token uint64) error
	// exact reports whether release with a token can end only this grant.
	exact(token uint64) bool
	// watch returns how the grant with a token has ended, as soon as that is known without a renewal. It returns nil
	// when the context is done, or if only a renewal can show it. It may call look to request a renewal now.
	watch(ctx context.Context, token uint64, look func()) error
	// why returns how a missing grant with a token has ended, after a renewal has failed; nil when the server does not
	// say.
	why(ctx context.Context, token uint64) error
	// timeout is how long one call of take may last.
	timeout(token uint64) time.Duration
	// classify returns the meaning of an error from take or release.
	classify(err error) base.Verdict
	// next returns the calls of the next hold, or of the next attempt after base.Missed.
	next() calls
	// id is the claim's id, "" for a lock.
	id() string
}
