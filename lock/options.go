package lock

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/lease"
	"github.com/locket-service/locket/models"
)

const (
	// DefaultTTL is the TTL of a runner that is given 0.
	DefaultTTL = 15 * time.Second
	// maxTTL is the longest that the servers allow: 100 years.
	maxTTL = 100 * 365 * 24 * time.Hour
	// DefaultRetryInterval is the retry interval of a runner that is given 0.
	DefaultRetryInterval = 5 * time.Second
	// DefaultWaitTTL is the wait TTL of a claim that is given none: longer than it takes to reach
	// another server after the loss of one, or to restart it, so that nobody loses a place by that.
	DefaultWaitTTL = time.Minute
	// jitter is by how much of itself each pause is shortened at most, so that runners that started together
	// do not renew together.
	jitter = 0.2
)

// Callbacks report what happens to the lock. They are called one after the other, in the order of what they
// report; the lock is renewed meanwhile. Run returns when they have. Any may be nil.
type Callbacks struct {
	// Acquired gets the fencing token of the grant (0 from a server that gives none).
	Acquired func(token uint64)
	// Unverifiable gets the error of the first renewal that failed while the trust window lasts:
	// the lock is held, but unverified. It is called again for the first renewal that the
	// server denies (Unauthenticated, PermissionDenied). A session is unverified when no server
	// has answered a heartbeat for two thirds of the TTL.
	Unverifiable func(error)
	// Verified is called when a renewal succeeded after some that had failed.
	Verified func()
	// Lost gets the error, which wraps ErrLost. For a lock the runner ends next.
	Lost func(error)
	// Refused gets the error of each attempt to announce a lost presence again that the server
	// refuses (Unauthenticated, PermissionDenied, InvalidArgument). It is tried again. A runner
	// that never held ends with such an error.
	Refused func(error)
}

// Option changes a default of a runner.
type Option func(*settings)

type settings struct {
	wrong              error // of the TTL, which is the default then
	ttl, retryInterval time.Duration
	margin             time.Duration
	releaseTimeout     time.Duration
	waitTTL            time.Duration
	owner              string
	log                *slog.Logger
	callbacks          Callbacks
}

// WithLogger has the runner log to a logger instead of to none: gains and losses at level
// info and error, failures at level warn. A nil logger is refused by Run.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithOwner sets the owner, in place of that of the resource or the claim. "" leaves it as it
// is. UniqueOwner says what an owner is.
func WithOwner(owner string) Option { return func(s *settings) { s.owner = owner } }

// WithRetryInterval sets how long after an attempt to take the lock the next one follows, in
// place of the argument: DefaultRetryInterval for a claim, unless it is set, and a quarter of
// the TTL at most. A renewal that failed is tried again after a tenth of the TTL, if that is
// shorter.
func WithRetryInterval(interval time.Duration) Option {
	return func(s *settings) { s.retryInterval = interval }
}

// WithReleaseTimeout bounds the time that releasing the lock may take at the end: 5 s, or
// the TTL if that is shorter, unless it is set.
func WithReleaseTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.releaseTimeout = timeout }
}

// WithWaitTTL sets for how long the claim of a runner may wait without the server hearing from
// the runner, 1 s at least: DefaultWaitTTL unless it is set, or the claim has a wait TTL. It is
// for how long a runner that is gone can delay those behind it in the queue, all that are gone
// together; and for how long one may be cut off from all servers without losing its place. With
// 0 it keeps its place for ever. It means nothing for locks and presences, which do not wait.
func WithWaitTTL(ttl time.Duration) Option { return func(s *settings) { s.waitTTL = ttl } }

// WithCallbacks has the runner report what happens.
func WithCallbacks(callbacks Callbacks) Option {
	return func(s *settings) { s.callbacks = callbacks }
}

func newSettings(ttl, retryInterval, longest time.Duration, options []Option) settings {
	s := settings{ttl: ttl, retryInterval: retryInterval, log: slog.New(slog.DiscardHandler)}
	if ttl == 0 {
		s.ttl = DefaultTTL
	}
	if retryInterval == 0 {
		s.retryInterval = DefaultRetryInterval
	}
	if s.ttl < time.Second || s.ttl > longest {
		s.wrong = fmt.Errorf("the TTL is %s, and must be 1s to %s", ttl, limit(longest))
		s.ttl = DefaultTTL
	}
	s.releaseTimeout = min(5*time.Second, s.ttl)
	s.waitTTL = DefaultWaitTTL
	s.margin = lease.Margin(s.ttl)
	for _, option := range options {
		option(&s)
	}
	return s
}

// newClaimSettings is newSettings with a TTL in seconds, as claims have it.
func newClaimSettings(seconds float64, longest time.Duration, options []Option) settings {
	if seconds >= 0 && seconds <= longest.Seconds() {
		return newSettings(time.Duration(math.Round(seconds*float64(time.Second))), 0, longest, options)
	}
	s := newSettings(0, 0, longest, options) // also for what is no number
	s.wrong = fmt.Errorf("the TTL is %vs, and must be 1s to %s", seconds, limit(longest))
	return s
}

func limit(ttl time.Duration) string {
	if ttl == maxTTL {
		return "100 years"
	}
	return ttl.String()
}

// validate returns everything that is wrong with what a runner was given.
func (r *Runner) validate() error {
	wrong := []error{r.wrong}
	need := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	need(r.usable, "the client or the lock is missing")
	need(r.log != nil, "the logger is nil")
	need(r.key != "", "the key is missing")
	need(r.retryInterval > 0, "the retry interval is %s, and must be more than 0", r.retryInterval)
	need(r.waitTTL == 0 || r.waitTTL >= time.Second, "the wait TTL is %s, and must be 0 or at least 1s", r.waitTTL)
	need(r.releaseTimeout > 0, "the release timeout is %s, and must be more than 0", r.releaseTimeout)
	return errors.Join(wrong...)
}

// withType returns a copy of a resource that has a type: the one that is given where it has
// none.
func withType(resource *models.Resource, code models.TypeCode) *models.Resource {
	resource, _ = proto.Clone(resource).(*models.Resource)
	if resource.GetTypeCode() == models.TypeCode_UNKNOWN && resource.GetType() == "" && resource != nil {
		resource.TypeCode = code
	}
	return resource
}
