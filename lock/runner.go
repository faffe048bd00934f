package lock

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/models"
)

// Runner holds a lock or a claim, or announces a presence, while it runs. It may run again
// after it has ended, but not twice at once: a second Run is refused with ErrRunning. Its
// methods may be called at any time, by any goroutine.
//
// It is the caller's handle. Each run has a keeper, which reads the fields that never change,
// and publishes the grant.
type Runner struct {
	settings
	key, owner string
	// exitOnLoss distinguishes a lock from a presence.
	exitOnLoss bool
	// usable is not set if the runner was not given what it needs.
	usable bool
	// grantor is that of the next run; only the run under way uses it.
	grantor grantor
	runs    runs

	mu        sync.Mutex
	published grant
	claimID   string
}

var _ ifrit.Runner = (*Runner)(nil)

// NewLockRunner returns a runner that is ready once it holds the lock, and ends with an
// error that wraps ErrLost as soon as it has lost it. The lock is tried for every
// retryInterval, and renewed at a third of the TTL. A TTL or an interval of 0 stands for its
// default; a TTL is rounded up to seconds on the wire. A resource without an owner gets a
// UniqueOwner, which every run of this runner has. Invalid arguments are the error of Run.
func NewLockRunner(client LockClient, resource *models.Resource, ttl, retryInterval time.Duration, options ...Option) *Runner {
	r := newRunner(client, resource, models.TypeCode_LOCK, newSettings(ttl, retryInterval, maxTTL, options))
	r.exitOnLoss = true
	return r
}

// NewPresenceRunner returns a runner that is ready once it has announced the presence, and
// does not end when it is lost, but announces it again. Its arguments are those of
// NewLockRunner.
func NewPresenceRunner(client LockClient, resource *models.Resource, ttl, retryInterval time.Duration, options ...Option) *Runner {
	return newRunner(client, resource, models.TypeCode_PRESENCE, newSettings(ttl, retryInterval, maxTTL, options))
}

func newRunner(client LockClient, resource *models.Resource, code models.TypeCode, settings settings) *Runner {
	resource = withType(resource, code)
	if resource != nil {
		resource.Owner = settings.ownerOr(resource.GetOwner())
	}
	return &Runner{
		settings: settings, key: resource.GetKey(), owner: resource.GetOwner(),
		grantor: &lockGrantor{client, resource, settings.ttl}, usable: client != nil && resource != nil,
	}
}

// ownerOr returns the owner of a runner that was made for a resource or a claim with an owner.
func (s *settings) ownerOr(given string) string {
	return cmp.Or(s.owner, given, UniqueOwner())
}

// Owner returns the owner that holds, as the server and its lists name it.
func (r *Runner) Owner() string { return r.owner }

// Held returns the fencing token of the grant, and whether the lock is held at this moment:
// it reads the clock, so it is right even in the first moment after a long pause.
func (r *Runner) Held() (token uint64, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.published.token, r.published.trust.Trusted(time.Now())
}

// ClaimID returns the id of the claim with which a runner of NewClaimRunner waits or holds, or
// did last; "" before its first run, and for other runners.
func (r *Runner) ClaimID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claimID
}

// setClaimID sets what ClaimID returns. Only the keeper of a run calls it.
func (r *Runner) setClaimID(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claimID = id
}

// setPublished sets what Held returns. Only the keeper of a run calls it.
func (r *Runner) setPublished(g grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published = g
}

// Run implements ifrit.Runner. If an earlier run could not release its lock in time, it first
// waits until that is done, for the TTL at most.
func (r *Runner) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return r.run(signals, ready, r.exitOnLoss)
}

func (r *Runner) run(signals <-chan os.Signal, ready chan<- struct{}, exitOnLoss bool) error {
	if err := r.validate(); err != nil {
		return fmt.Errorf("lock %q: %w", r.key, err)
	}
	if err := r.runs.begin(signals); errors.Is(err, errSignalled) {
		return nil
	} else if err != nil {
		return fmt.Errorf("lock %q: %w", r.key, err)
	}
	defer r.runs.end()
	k := newKeeper(r, ready, exitOnLoss)
	defer func() { r.grantor = k.grantor.next() }()
	return k.run(signals)
}
