package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/lock/internal/base"
)

// Joint is an ifrit runner that holds several locks together: all or none. It may run again after it has ended, but
// not twice at once (ErrRunning). Its methods may be called at any time, by any goroutine.
type Joint struct {
	given   []*Runner // in the order of the arguments
	runners []*Runner // in the order of the keys
	// timeout is how long locks that are held wait for the others.
	timeout time.Duration
	running atomic.Bool
	release base.PendingRelease

	mu   sync.Mutex
	held bool // all were taken, and none is known to be lost
	lost chan struct{}
}

var _ ifrit.Runner = (*Joint)(nil)

// NewJoint returns a runner that is ready once all locks are held, and ends at once with the error of the first lost
// lock. It takes the locks one after the other in the order of their keys, whatever the order of the arguments, so
// that two Joints never wait for each other. While it waits for the next lock it keeps the others, for the longest of
// the TTLs at most. Then it releases all, and starts again after a retry interval.
//
// The runners may hold locks, claims and presences. The loss of a presence ends the Joint too. If a claim could not be
// released or withdrawn, the next attempt makes a new claim with a new id, at the end of the queue.
//
// After a loss the Joint releases the other locks in the background, each after its margin, so that the holder can
// stop first. A signal releases all at once; Run returns when that is done, or after the longest release timeout.
func NewJoint(runners ...*Runner) *Joint {
	j := &Joint{given: slices.Clone(runners), runners: slices.Clone(runners), lost: make(chan struct{})}
	slices.SortStableFunc(j.runners, func(a, b *Runner) int {
		return strings.Compare(a.key, b.key)
	})
	for _, r := range j.runners {
		j.timeout = max(j.timeout, r.TTL)
	}
	return j
}

// Held returns the fencing tokens of the grants, in the order of the arguments of NewJoint, and whether all locks are
// held at this moment. If not, there are no tokens. It reads the clock, like Runner.Held.
func (j *Joint) Held() (tokens []uint64, held bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.held {
		return nil, false
	}
	for _, r := range j.given {
		token, held := r.Held()
		if !held {
			return nil, false
		}
		tokens = append(tokens, token)
	}
	return tokens, true
}

// Lost returns a channel that is closed as soon as a run that was ready loses one of its locks, before Run returns. It
// is the channel of the current or last run; before the first run, the channel of that run. A signal does not close
// it.
func (j *Joint) Lost() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lost
}

func (j *Joint) validate() error {
	for i := 1; i < len(j.runners); i++ {
		if key := j.runners[i].key; key == j.runners[i-1].key {
			return fmt.Errorf("joint lock: %q is named twice", key)
		}
	}
	return nil
}

func (j *Joint) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	if err := j.validate(); err != nil {
		return err
	}
	if !j.running.CompareAndSwap(false, true) {
		return fmt.Errorf("joint lock: %w", ErrRunning)
	}
	defer j.running.Store(false)
	ctx, cancel := untilSignal(signals)
	defer cancel()
	j.renewLost()
	select {
	case <-j.release.Done():
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		pause, err := j.try(ctx, ready)
		if err != nil {
			return err
		}
		_ = periodic.Pause(ctx, pause)
	}
	return nil
}

// try takes all locks, and holds them until one is lost or a signal comes. Without an error nothing is held any more: another
// attempt may follow after a pause.
func (j *Joint) try(run context.Context, ready chan<- struct{}) (pause time.Duration, err error) {
	a := &attempt{held: make(chan struct{})}
	a.ctx, a.end = context.WithCancelCause(run)
	a.locks.Go(func() { a.take(j.runners, j.timeout) })
	select {
	case <-a.held:
	case <-a.ctx.Done():
	}
	if a.ctx.Err() == nil {
		j.setHeld(true)
		close(ready)
		<-a.ctx.Done()
		j.setHeld(false)
		if a.failed() {
			close(j.lost)
		}
	}
	if a.failed() {
		j.release.Start(a.locks.Wait)
		return 0, context.Cause(a.ctx)
	}
	a.locks.Wait()
	return a.pause, nil
}

func (j *Joint) setHeld(held bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = held
}

// renewLost replaces the channel of Lost if an earlier run has closed it.
func (j *Joint) renewLost() {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-j.lost:
		j.lost = make(chan struct{})
	default:
	}
}

// attempt is one attempt of a Joint to hold all of its locks.
type attempt struct {
	// ctx ends with a signal, the timeout or the first error: its cause says which.
	ctx context.Context
	end context.CancelCauseFunc
	// locks are the goroutines that take and keep them.
	locks sync.WaitGroup
	// held is closed when all are held.
	held chan struct{}
	// pause is the retry interval of the lock that was asked for last.
	pause time.Duration
}

// errBlocked ends an attempt that did not get all locks in time.
var errBlocked = errors.New("not all locks could be held in time")

// failed reports whether a lock was refused or lost.
func (a *attempt) failed() bool {
	cause := context.Cause(a.ctx)
	return cause != nil && !errors.Is(cause, errSignalled) && !errors.Is(cause, errBlocked)
}

// take takes the locks one after the other.
func (a *attempt) take(runners []*Runner, timeout time.Duration) {
	var blocked *time.Timer
	for i, r := range runners {
		a.pause = r.RetryInterval
		if err := r.begin(); err != nil {
			a.end(err)
			return
		}
		hold, err := r.acquire(a.ctx, false)
		if err != nil {
			r.end()
			a.end(err)
			return
		}
		a.locks.Go(func() { a.keep(r, hold) })
		if i == 0 { // nothing waits for the first
			blocked = time.AfterFunc(timeout, func() { a.end(errBlocked) })
			defer blocked.Stop()
		}
	}
	if blocked == nil || blocked.Stop() { // if Stop fails, time was up just before
		close(a.held)
	}
}

// keep keeps a lock until it is lost, which ends the attempt, or the attempt ends. If another lock was lost, it is
// released after its margin, to leave the holder time to stop.
func (a *attempt) keep(r *Runner, hold *Hold) {
	defer r.end()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(a.ctx, func() {
		if a.failed() {
			time.Sleep(r.Margin)
		}
		cancel()
	})()
	if err := r.keep(ctx, hold); err != nil {
		r.reports.Flush()
		a.end(err)
	}
}
