package lock

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tedsuo/ifrit"
)

// Joint holds several locks together: all or none. It may run again after it has ended, but
// not twice at once. Its methods may be called at any time, by any goroutine.
type Joint struct {
	given   []*Runner // in the order of the arguments
	runners []*Runner // in the order of the keys
	// timeout is how long locks that are held wait for the others.
	timeout time.Duration
	runs    runs

	mu   sync.Mutex
	held bool // all were taken, and none is known to be lost
	lost chan struct{}
}

var _ ifrit.Runner = (*Joint)(nil)

// NewJoint returns a runner that is ready once all locks are held, and ends with the error of
// the first that is lost, at once. The locks are taken one after the other in the order of
// their keys, whatever the order of the arguments, so that two Joints never wait for each
// other. Locks that are held wait for the next one for the longest of the TTLs; then all are
// released, and it begins again after a retry interval.
//
// The runners may be of locks, claims and presences. A claim that was released or withdrawn in
// vain is made anew, with a new id, at the end of its queue. A presence counts like a lock: its
// loss ends the Joint too, because the others would be held without it.
//
// After a loss the other locks are released in the background, in parallel, each after its
// margin, in which the holder stops, and within its release timeout. A signal releases all in
// parallel; Run returns when that is done, or the longest release timeout has passed.
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

// Held returns the fencing tokens of the grants, in the order of the arguments of NewJoint, and
// whether all locks are held at this moment: it reads the clock, like Runner.Held. Without
// that there are no tokens.
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

// Lost returns a channel that is closed as soon as the run under way, once it was ready, loses
// one of its locks, before Run returns; without a run it is that of the last one, and of the
// first one before it. A signal does not close it.
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

// Run implements ifrit.Runner.
func (j *Joint) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	if err := j.validate(); err != nil {
		return err
	}
	if err := j.runs.begin(signals); errors.Is(err, errSignalled) {
		return nil
	} else if err != nil {
		return fmt.Errorf("joint lock: %w", err)
	}
	defer j.runs.end()
	j.renewLost()
	for {
		blocked, err := j.try(signals, ready)
		switch {
		case errors.Is(err, errSignalled):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-signals:
			return nil
		case <-time.After(blocked.RetryInterval):
		}
	}
}

// try takes all locks, and holds them until one is lost or a signal comes. It returns the runner
// that was not ready in time, if one was not, when nothing is held any more.
func (j *Joint) try(signals <-chan os.Signal, ready chan<- struct{}) (blocked *Runner, err error) {
	g := &jointGrant{ended: make(chan error, len(j.runners))}
	blocked, err = g.take(j.runners, j.timeout, signals)
	if err == nil && blocked == nil {
		j.setHeld(true)
		close(ready)
		err = g.hold(signals)
		j.setHeld(false)
		j.signalLoss(err)
	}
	if err == nil || errors.Is(err, errSignalled) {
		g.release(false)
		return blocked, err
	}
	j.runs.Leave(func() { g.release(true) })
	return nil, err
}

func (j *Joint) setHeld(held bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = held
}

// signalLoss closes the channel of Lost, unless it was a signal that ended the hold.
func (j *Joint) signalLoss(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !errors.Is(err, errSignalled) {
		close(j.lost)
	}
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
