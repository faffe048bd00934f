package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/lease"
	"github.com/locket-service/locket/models"
)

// Runner holds a lock or a claim, or announces a presence, while it runs. It may run again
// after it has ended, but not twice at once: a second Run is refused with ErrRunning. Its
// methods may be called at any time, by any goroutine.
//
// It holds by calls or by a session: that is for its holder to know.
type Runner struct {
	settings
	key, owner string
	// exitOnLoss distinguishes a lock from a presence.
	exitOnLoss bool
	// usable is not set if the runner was not given what it needs.
	usable bool
	// holder is for the run under way alone.
	holder base.Holder
	runs   runs
	// reports calls the callbacks.
	reports base.Serial

	mu   sync.Mutex
	hold *Hold // nil while nothing is held
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
		settings: settings, key: resource.GetKey(), owner: resource.GetOwner(), usable: client != nil && resource != nil,
		holder: lease.NewLocks(client, resource, settings.Settings),
	}
}

// ownerOr returns the owner of a runner that was made for a resource or a claim with an owner.
func (s *settings) ownerOr(given string) string {
	return cmp.Or(s.Owner, given, UniqueOwner())
}

// Owner returns the owner that holds, as the server and its lists name it.
func (r *Runner) Owner() string { return r.owner }

// Held returns the fencing token of the grant, and whether the lock is held at this moment:
// it reads the clock, so it is right even in the first moment after a long pause.
func (r *Runner) Held() (token uint64, held bool) {
	r.mu.Lock()
	hold := r.hold
	r.mu.Unlock()
	return heldBy(hold)
}

// ClaimID returns the id of the claim with which a runner of NewClaimRunner waits or holds, or
// did last; "" before its first run, and for other runners.
func (r *Runner) ClaimID() string { return r.holder.ClaimID() }

// setHold sets what Held asks.
func (r *Runner) setHold(hold *Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = hold
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
	defer r.reports.Flush()
	for {
		pause, err := r.holdOnce(signals, &ready, exitOnLoss)
		switch {
		case errors.Is(err, errSignalled):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-signals:
			return nil
		case <-time.After(base.Jittered(pause)):
		}
	}
}

// holdOnce takes the lock, and holds it until a signal comes or it is lost. Without an error it is to be taken again, after a pause.
func (r *Runner) holdOnce(signals <-chan os.Signal, ready *chan<- struct{}, exitOnLoss bool) (pause time.Duration, err error) {
	hold, err := r.acquire(signals, !exitOnLoss)
	switch {
	case errors.Is(err, errSignalled):
		return 0, err
	case err != nil && *ready != nil:
		return 0, err
	case err != nil:
		r.Log.Error("presence refused", "lock", r.key, "owner", r.owner, "error", err)
		base.Tell(later(&r.reports, r.callbacks.Refused), err)
		return r.RetryInterval, nil
	}
	r.setHold(hold)
	defer r.setHold(nil)
	if *ready != nil {
		close(*ready)
		*ready = nil
	}
	signalled := false
	select {
	case <-signals:
		signalled = true
		r.setHold(nil)
		r.release(hold)
	case <-hold.Done():
	}
	err = hold.Err()
	r.setHold(nil)
	if errors.Is(err, ErrReleased) {
		return 0, errSignalled
	}
	r.Log.Error("lock lost", "lock", r.key, "owner", r.owner, "error", err)
	base.Tell(later(&r.reports, r.callbacks.Lost), err)
	switch {
	case exitOnLoss:
		return 0, err
	case signalled:
		return 0, errSignalled
	default:
		return min(r.RetryInterval, r.TTL/10), nil
	}
}

// acquire returns what is held when it is, or errSignalled when nothing is after a signal.
func (r *Runner) acquire(signals <-chan os.Signal, again bool) (*Hold, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var hold *Hold
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		hold, err = acquire(ctx, r.holder, r.callbacks.observer(&r.reports, again))
	}()
	select {
	case <-done:
		return hold, err
	case <-signals:
		cancel()
		<-done
		if hold == nil {
			return nil, errSignalled
		}
		r.release(hold)
		if err := hold.Err(); !errors.Is(err, ErrReleased) {
			base.Tell(later(&r.reports, r.callbacks.Lost), err)
			return nil, err
		}
		return nil, errSignalled
	}
}

// release releases within the release timeout; what takes longer goes on in the background.
func (r *Runner) release(hold *Hold) {
	ctx, cancel := context.WithTimeout(context.Background(), r.ReleaseTimeout)
	defer cancel()
	if err := hold.Release(ctx); err != nil {
		r.Log.Warn("lock not released yet; it is free when its TTL has passed", "lock", r.key, "owner", r.owner, "error", err)
	}
}
