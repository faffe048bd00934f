package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/lease"
	"github.com/locket-service/locket/models"
)

// Runner is an ifrit runner that holds a lock or a claim, or announces a presence, while it runs. It may run again
// after it has ended, but not twice at once (ErrRunning). Its methods may be called at any time, by any goroutine.
type Runner struct {
	settings
	key, owner string
	// exitOnLoss distinguishes a lock from a presence.
	exitOnLoss bool
	// usable is not set if the runner was not given what it needs.
	usable bool
	// holder is for the run under way alone.
	holder  base.Holder
	running atomic.Bool
	// reports calls the callbacks.
	reports inbox.Inbox

	mu   sync.Mutex
	hold *Hold // nil while nothing is held
}

var _ ifrit.Runner = (*Runner)(nil)

// NewLockRunner returns a runner that is ready once it holds the lock, and ends with an error that wraps ErrLost as
// soon as it has lost it. It does not wait in a queue: it tries every retryInterval, and renews the lock at a third of
// the TTL. If ttl or retryInterval is 0, it is DefaultTTL or DefaultRetryInterval; the TTL is rounded up to whole
// seconds. A resource without an owner gets a UniqueOwner, for all runs of this runner. Run returns an error if an
// argument is invalid.
func NewLockRunner(client LockClient, resource *models.Resource, ttl, retryInterval time.Duration, options ...Option) *Runner {
	r := newRunner(client, resource, models.TypeCode_LOCK, newSettings(ttl, retryInterval, maxTTL, options))
	r.exitOnLoss = true
	return r
}

// NewPresenceRunner returns a runner that is ready once it has announced the presence. When the presence is lost, the
// runner announces it again instead of ending. The arguments are the same as for NewLockRunner.
func NewPresenceRunner(client LockClient, resource *models.Resource, ttl, retryInterval time.Duration, options ...Option) *Runner {
	return newRunner(client, resource, models.TypeCode_PRESENCE, newSettings(ttl, retryInterval, maxTTL, options))
}

func newRunner(client LockClient, resource *models.Resource, code models.TypeCode, settings settings) *Runner {
	resource = withType(resource, code)
	if resource != nil {
		resource.Owner = settings.ownerOr(resource.GetOwner())
		settings.wrong = errors.Join(settings.wrong, checkText("type", resource.GetType()), checkText("value", resource.GetValue()))
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

// Owner returns the owner of the lock, as the server and its lists show it.
func (r *Runner) Owner() string { return r.owner }

// Held returns the fencing token of the grant, and whether the lock is held at this moment. It reads the clock, so it
// is right even directly after a long pause.
func (r *Runner) Held() (token uint64, held bool) {
	r.mu.Lock()
	hold := r.hold
	r.mu.Unlock()
	return heldBy(hold)
}

// ClaimID returns the id of the current or last claim of a runner from NewClaimRunner; "" before its first run, and
// for other runners.
func (r *Runner) ClaimID() string { return r.holder.ClaimID() }

// Run implements ifrit.Runner. If an earlier run could not release its lock in time, Run first waits for that, for the
// TTL at most.
func (r *Runner) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	if err := r.begin(); err != nil {
		return err
	}
	defer r.end()
	ctx, cancel := untilSignal(signals)
	defer cancel()
	for {
		hold, err := r.acquire(ctx, !r.exitOnLoss)
		pause := r.RetryInterval
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && ready != nil, errors.Is(err, conn.ErrClosed), errors.Is(err, ErrClosed):
			return err
		case err != nil:
			r.Log.Error("presence refused", "lock", r.key, "owner", r.owner, "error", err)
			base.Tell(&r.reports, r.callbacks.Refused, err)
		default:
			if ready != nil && ctx.Err() == nil {
				close(ready)
				ready = nil
			}
			if err = r.keep(ctx, hold); err == nil || r.exitOnLoss {
				return err
			}
			pause = min(pause, r.TTL/10)
		}
		_ = periodic.Pause(ctx, base.Jittered(pause)) // after the end of ctx the next attempt gives up what the servers may still have
	}
}

// begin begins a run, if all that the runner was given is right.
func (r *Runner) begin() error {
	err := r.validate()
	if err == nil && !r.running.CompareAndSwap(false, true) {
		err = ErrRunning
	}
	if err != nil {
		return fmt.Errorf("lock %q: %w", r.key, err)
	}
	return nil
}

// end ends a run when its callbacks have returned.
func (r *Runner) end() {
	r.reports.Flush()
	r.running.Store(false)
}

// acquire waits until the lock is held. With again it will be acquired again after a loss.
func (r *Runner) acquire(ctx context.Context, again bool) (*Hold, error) {
	hold, err := r.observers.acquire(ctx, r.key, r.owner, r.holder, base.Observer{Callbacks: base.Callbacks(r.callbacks), Calls: &r.reports, Again: again})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = hold
	return hold, err
}

// keep returns when the lock is lost, with the error, or ctx is done and it has been released.
func (r *Runner) keep(ctx context.Context, hold *Hold) error {
	select {
	case <-ctx.Done():
		r.release(hold)
	case <-hold.Done():
	}
	err := hold.Err()
	if errors.Is(err, ErrReleased) {
		return nil
	}
	r.Log.Error("lock lost", "lock", r.key, "owner", r.owner, "error", err)
	base.Tell(&r.reports, r.callbacks.Lost, err)
	return err
}

// release releases within the release timeout; a longer release continues in the background.
func (r *Runner) release(hold *Hold) {
	ctx, cancel := context.WithTimeout(context.Background(), r.ReleaseTimeout)
	defer cancel()
	if err := hold.Release(ctx); err != nil {
		r.Log.Warn("lock not released yet; it is free when its TTL has passed", "lock", r.key, "owner", r.owner, "error", err)
	}
}

// Callbacks report the events of a runner's lock, one at a time and in order. Renewals continue while a callback runs.
// Run waits for the callbacks before it returns. Any of them may be nil.
type Callbacks struct {
	// Waiting is called each time a server answers that others are before the runner. holder is the owner of the lock,
	// "" if the server does not name it.
	Waiting func(holder string)
	// Renewed is called for the grant, before Acquired, and for each renewal: sent is the time when the request was
	// sent, lasts the TTL that the server counts from then on.
	Renewed func(sent time.Time, lasts time.Duration)
	// Acquired gets the fencing token of the grant (0 from a server that gives none).
	Acquired func(token uint64)
	// Unverifiable gets the error of the first failed renewal while the trust window lasts: the lock is held, but
	// unverified. It is called again for the first renewal that the server refuses (Unauthenticated,
	// PermissionDenied). A session is unverified when no server has answered a heartbeat for two thirds of the TTL.
	Unverifiable func(error)
	// Verified is called when a renewal succeeds after failed ones.
	Verified func()
	// Lost gets the error, which wraps ErrLost. A runner of a lock then ends.
	Lost func(error)
	// Refused gets the error of each refused attempt to announce a lost presence again (Unauthenticated,
	// PermissionDenied, InvalidArgument). The runner tries again. A runner that has never held ends with the error
	// instead.
	Refused func(error)
}

// any reports whether one is set.
func (c *Callbacks) any() bool {
	return c.Waiting != nil || c.Renewed != nil || c.Acquired != nil || c.Unverifiable != nil || c.Verified != nil || c.Lost != nil || c.Refused != nil
}

// ErrRunning is the error of Run while an earlier Run of the same runner has not returned.
var ErrRunning = errors.New("the runner runs already")

// errSignalled is the cause of the end of a run that has got a signal.
var errSignalled = errors.New("signalled")

// untilSignal returns a context that ends with the first signal.
func untilSignal(signals <-chan os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		select {
		case <-signals:
			cancel(errSignalled)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
