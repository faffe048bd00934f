package lock

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/models"
)

// Runner holds a lock or a claim, or announces a presence, while it runs. Those of locks and
// presences may run again after they have ended. Its methods may be called at any time, by any
// goroutine.
//
// It is the caller's handle. Each run has a keeper, which reads the fields that never change,
// and publishes the grant.
type Runner struct {
	settings
	grantor    grantor
	key, owner string
	// exitOnLoss tells a lock from a presence.
	exitOnLoss bool
	// usable is not set if the runner was not given what it needs.
	usable bool

	mu        sync.Mutex
	published grant
}

var _ ifrit.Runner = (*Runner)(nil)

// NewLockRunner returns a runner that is ready once it holds the lock, and ends with an
// error that wraps ErrLost as soon as it has lost it. The lock is tried for every
// retryInterval, and renewed as often, but at least three times in each TTL. A TTL or an
// interval of 0 stands for its default; a TTL is rounded up to seconds on the wire. Invalid
// arguments are the error of Run.
func NewLockRunner(client models.LocketClient, resource *models.Resource, ttl, retryInterval time.Duration, options ...Option) *Runner {
	r := newRunner(client, withType(resource, models.TypeCode_LOCK), newSettings(ttl, retryInterval, options))
	r.exitOnLoss = true
	return r
}

// NewPresenceRunner returns a runner that is ready once it has announced the presence, and
// does not end when it is lost, but announces it again. Its arguments are those of
// NewLockRunner.
func NewPresenceRunner(client models.LocketClient, resource *models.Resource, ttl, retryInterval time.Duration, options ...Option) *Runner {
	return newRunner(client, withType(resource, models.TypeCode_PRESENCE), newSettings(ttl, retryInterval, options))
}

func newRunner(client models.LocketClient, resource *models.Resource, settings settings) *Runner {
	return &Runner{
		settings: settings, key: resource.GetKey(), owner: resource.GetOwner(),
		grantor: &lockGrantor{client, resource, settings.ttl}, usable: client != nil && resource.GetOwner() != "",
	}
}

// Held returns the fencing token of the grant, and whether the lock is held at this moment:
// it asks the clock, so it is right even in the first moment after a long pause.
func (r *Runner) Held() (token uint64, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.published.token, r.published.trust.Trusted(time.Now())
}

// setPublished sets what Held returns. Only the keeper of a run calls it.
func (r *Runner) setPublished(g grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published = g
}

// Run implements ifrit.Runner.
func (r *Runner) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	if err := r.validate(); err != nil {
		return fmt.Errorf("lock %q: %w", r.key, err)
	}
	return newKeeper(r, ready).run(signals)
}
