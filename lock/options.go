package lock

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

const (
	// DefaultTTL is the TTL of a runner that is given 0.
	DefaultTTL = 15 * time.Second
	// DefaultRetryInterval is the retry interval of a runner that is given 0.
	DefaultRetryInterval = 5 * time.Second
)

// Callbacks report what happens to the lock. They are called one after the other by the
// runner, which renews nothing meanwhile: they must return soon. Any may be nil.
type Callbacks struct {
	// Acquired gets the fencing token of the grant (0 from a server that gives none).
	Acquired func(token uint64)
	// Unverifiable gets the error of the first renewal that failed while the trust window lasts:
	// the lock is held, but unverified.
	Unverifiable func(error)
	// Verified is called when a renewal succeeded after some that had failed.
	Verified func()
	// Lost gets the error, which wraps ErrLost. For a lock the runner ends next.
	Lost func(error)
}

// Option changes a default of a runner.
type Option func(*settings)

type settings struct {
	ttl, retryInterval time.Duration
	releaseTimeout     time.Duration
	jitter             float64
	log                *slog.Logger
	callbacks          Callbacks
}

// WithLogger has the runner log to a logger instead of to none: gains and losses at level
// info and error, failures at level warn.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithJitter sets by how much of itself each pause is shortened at random, 0 to 1: 0.2
// unless it is set. With it runners that started together do not renew together.
func WithJitter(fraction float64) Option { return func(s *settings) { s.jitter = fraction } }

// WithReleaseTimeout bounds the time that releasing the lock may take at the end: 5 s, or
// the TTL if that is shorter, unless it is set.
func WithReleaseTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.releaseTimeout = timeout }
}

// WithCallbacks has the runner report what happens.
func WithCallbacks(callbacks Callbacks) Option {
	return func(s *settings) { s.callbacks = callbacks }
}

func newSettings(ttl, retryInterval time.Duration, options []Option) settings {
	s := settings{ttl: ttl, retryInterval: retryInterval, jitter: 0.2, log: slog.New(slog.DiscardHandler)}
	if ttl == 0 {
		s.ttl = DefaultTTL
	}
	if retryInterval == 0 {
		s.retryInterval = DefaultRetryInterval
	}
	s.releaseTimeout = min(5*time.Second, s.ttl)
	for _, option := range options {
		option(&s)
	}
	return s
}

// validate returns everything that is wrong with what a runner was given.
func (r *Runner) validate() error {
	var wrong []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	need(r.usable, "the client or the lock's owner is missing")
	need(r.key != "", "the key is missing")
	need(r.ttl >= time.Second, "the TTL is %s, and at least 1s is needed", r.ttl)
	need(r.retryInterval > 0, "the retry interval is %s, and must be more than 0", r.retryInterval)
	need(r.releaseTimeout > 0, "the release timeout is %s, and must be more than 0", r.releaseTimeout)
	need(r.jitter >= 0 && r.jitter < 1, "the jitter is %v, and must be at least 0 and less than 1", r.jitter)
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
