package lock

import (
	"os"
	"sync"
	"time"

	"github.com/tedsuo/ifrit"
)

// jointGrant is what a Joint holds.
type jointGrant struct {
	runners   []*Runner // whose processes these are
	processes []ifrit.Process
	// ended gets the errors of the processes that end by themselves.
	ended chan error
}

// take starts the runners, each when the one before it is ready. It returns the one that
// did not become ready in time, if one did not.
func (g *jointGrant) take(runners []*Runner, timeout time.Duration, signals <-chan os.Signal) (blocked *Runner, err error) {
	var tooLong <-chan time.Time // nothing waits for the first
	for _, runner := range runners {
		process := ifrit.Background(ifrit.RunFunc(func(signals <-chan os.Signal, ready chan<- struct{}) error {
			return runner.run(signals, ready, true)
		}))
		g.runners, g.processes = append(g.runners, runner), append(g.processes, process)
		go func() { g.ended <- <-process.Wait() }()
		select {
		case <-process.Ready():
		case err := <-g.ended:
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
func (g *jointGrant) hold(signals <-chan os.Signal) error {
	select {
	case err := <-g.ended:
		return err
	case <-signals:
		return errSignalled
	}
}

// release ends the processes in parallel, each after its runner's margin if the holder needs it
// to stop, and returns when all have ended.
func (g *jointGrant) release(afterMargin bool) {
	var all sync.WaitGroup
	for i, process := range g.processes {
		all.Go(func() {
			if afterMargin {
				time.Sleep(g.runners[i].Margin)
			}
			process.Signal(os.Interrupt)
			if err := <-process.Wait(); err != nil {
				return // it results from the first, which is known
			}
		})
	}
	all.Wait()
}
