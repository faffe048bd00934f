package processors

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/periodic"
)

// Governor is an ifrit runner that sets on how many processors Go runs goroutines in this process: on one, or on as many as there are by
// default. It is a committer.Listener. It changes nothing if $GOMAXPROCS is set.
type Governor struct {
	underWay         func() int
	commits, changes atomic.Int64
	choice           choice
	last             counts
	// resting says that there was nothing to do: the next look comes later, or with the next commit, by a value of wake.
	resting atomic.Bool
	wake    chan struct{}
}

// New returns a governor. underWay returns how many calls are being carried out.
func New(underWay func() int) *Governor {
	return &Governor{underWay: underWay, wake: make(chan struct{}, 1)}
}

// Committed implements committer.Listener.
func (g *Governor) Committed(_ claim.Instant, changes []claim.Transition) {
	g.commits.Add(1)
	g.changes.Add(int64(len(changes)))
	if g.resting.CompareAndSwap(true, false) {
		select {
		case g.wake <- struct{}{}:
		default: // it is woken already
		}
	}
}

// Missed implements committer.Listener.
func (g *Governor) Missed() {}

// Run implements ifrit.Runner. At its end, Go has the default again.
func (g *Governor) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	if os.Getenv("GOMAXPROCS") != "" {
		close(ready)
		<-signals
		return nil
	}
	defer runtime.SetDefaultGOMAXPROCS()
	g.last = g.count()
	return periodic.Paced(g.pause, g.wake, func(context.Context) { g.look() }).Run(signals, ready)
}

// pause returns the time until the next look.
func (g *Governor) pause() time.Duration {
	if g.resting.Load() {
		return rest
	}
	return interval
}

// look looks at what has happened since the last time, and sets what follows from it.
func (g *Governor) look() {
	now := g.count()
	before, l := g.choice.one, since(g.last, now, g.underWay())
	switch one := g.choice.next(l); {
	case one && !before:
		runtime.GOMAXPROCS(1)
	case before && !one:
		runtime.SetDefaultGOMAXPROCS()
	}
	g.last = now
	g.resting.Store(before && l.nothing())
}

// counts are counted from the start of the process.
type counts struct {
	at               time.Time
	used             time.Duration // of processors
	commits, changes int64
}

func (g *Governor) count() counts {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // it fails for wrong arguments alone
	return counts{time.Now(), time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), g.commits.Load(), g.changes.Load()}
}

// since returns the load between two counts.
func since(last, now counts, underWay int) load {
	l := load{underWay: underWay}
	if took := now.at.Sub(last.at); took > 0 {
		l.busy = float64(now.used-last.used) / float64(took)
	}
	if commits := now.commits - last.commits; commits > 0 {
		l.together = float64(now.changes-last.changes) / float64(commits)
	}
	return l
}
