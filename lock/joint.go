package lock

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tedsuo/ifrit"
)

// Joint holds several locks together: all or none.
type Joint struct {
	runners []*Runner
	// timeout is how long locks that are held wait for the others.
	timeout time.Duration
}

var _ ifrit.Runner = (*Joint)(nil)

// NewJoint returns a runner that is ready once all locks are held, and ends with the error of
// the first that is lost, after it has released the others. The locks are taken one after
// the other in the order of their keys, whatever the order of the arguments, so that two
// Joints never wait for each other. Locks that are held wait for the next one for the longest
// of the TTLs; then all are released, and it begins again after a retry interval.
func NewJoint(runners ...*Runner) *Joint {
	j := &Joint{runners: slices.Clone(runners)}
	slices.SortStableFunc(j.runners, func(a, b *Runner) int {
		return strings.Compare(a.key, b.key)
	})
	for _, r := range j.runners {
		j.timeout = max(j.timeout, r.ttl)
	}
	return j
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
	for {
		h := &jointGrant{ended: make(chan error, len(j.runners))}
		blocked, err := h.take(j.runners, j.timeout, signals)
		if err == nil && blocked == nil {
			close(ready)
			err = h.hold(signals)
		}
		h.release()
		if errors.Is(err, errSignalled) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-signals:
			return nil
		case <-time.After(blocked.retryInterval):
		}
	}
}

// errSignalled ends a Joint that has got a signal.
var errSignalled = errors.New("signalled")

// jointGrant is what a Joint holds.
type jointGrant struct {
	processes []ifrit.Process
	// ended gets the errors of the processes that end by themselves.
	ended chan error
}

// take starts the runners, each when the one before it is ready. It returns the one that
// did not become ready in time, if one did not.
func (h *jointGrant) take(runners []*Runner, timeout time.Duration, signals <-chan os.Signal) (blocked *Runner, err error) {
	var tooLong <-chan time.Time // nothing waits for the first
	for _, runner := range runners {
		process := ifrit.Background(runner)
		h.processes = append(h.processes, process)
		go func() { h.ended <- <-process.Wait() }()
		select {
		case <-process.Ready():
		case err := <-h.ended:
			return nil, err
		case <-signals:
			return nil, errSignalled
		case <-tooLong:
			return runner, nil
		}
		if tooLong == nil {
			tooLong = time.After(timeout)
		}
	}
	return nil, nil
}

// hold returns when one has ended, or a signal comes.
func (h *jointGrant) hold(signals <-chan os.Signal) error {
	select {
	case err := <-h.ended:
		return err
	case <-signals:
		return errSignalled
	}
}

// release ends the processes, the last first.
func (h *jointGrant) release() {
	for _, process := range slices.Backward(h.processes) {
		process.Signal(os.Interrupt)
		if err := <-process.Wait(); err != nil {
			continue // the first error is returned, the others result from it
		}
	}
}
