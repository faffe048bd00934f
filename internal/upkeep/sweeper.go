package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer"
)

const (
	// shortPause is between two looks at the database at least. longPause is at most: another
	// server may have made leases, and died.
	shortPause = 50 * time.Millisecond
	longPause  = time.Second
	// idleGrace is for how long a lease that ran out is left alone while no claim waits
	// for it, so that a renewal that is a little late still finds it.
	idleGrace  = 500 * time.Millisecond
	sweepLimit = 256
	// sweepTimeout bounds each look at the database, and each command.
	sweepTimeout = 15 * time.Second
	// asideTime is for how long a resource is left alone whose leases cannot be ended.
	asideTime = 10 * time.Second
)

// Leases is a store as the sweeper needs it.
type Leases interface {
	db.Due
	// DueSessions and DetachSilent are those of db.Sessions.
	DueSessions(ctx context.Context, limit int) (ids []string, err error)
	DetachSilent(ctx context.Context, silence time.Duration) (detached int, err error)
}

// Sweeper ends leases that have run out: at once where claims wait, after idleGrace otherwise; waiting
// claims that nobody asks about; and sessions that nobody resumes, with their claims. It detaches the
// sessions of servers that are gone. It sleeps until the next deadline, and asks the database every
// longPause when there is none.
type Sweeper struct {
	store     Leases
	committer *committer.Committer
	log       *slog.Logger
	alarm     *alarm
	rounds    []*round

	failing bool // the database did not answer the last time
}

// round is one kind of what is to be ended.
type round struct {
	what string // is named by the names
	due  func(ctx context.Context, limit int) (names []string, err error)
	end  func(names []string) []claim.Command
	// aside has the names of what could not be ended, until when it is left alone.
	aside map[string]time.Time
}

// NewSweeper returns a sweeper of the store that ends leases through the committer, and listens to
// it for leases that run out before the Sweeper would have looked again.
func NewSweeper(store Leases, queues *committer.Committer, log *slog.Logger) *Sweeper {
	s := &Sweeper{store: store, committer: queues, log: log, alarm: newAlarm()}
	s.rounds = []*round{{
		what: "session",
		due:  store.DueSessions,
		end:  endSessions,
	}, {
		what: "resource",
		due:  func(ctx context.Context, limit int) ([]string, error) { return store.Due(ctx, idleGrace, limit) },
		end:  func(names []string) []claim.Command { return []claim.Command{claim.Expire{Resources: names}} },
	}, {
		what: "claim",
		due:  store.Abandoned,
		end:  func(ids []string) []claim.Command { return []claim.Command{claim.Expire{Waiters: ids}} },
	}}
	for _, r := range s.rounds {
		r.aside = make(map[string]time.Time)
	}
	queues.Listen(s)
	return s
}

// Committed implements committer.Listener.
func (s *Sweeper) Committed(_ claim.Instant, changes []claim.Transition) {
	soonest := never
	for _, change := range changes {
		if change.After.Status.Live() && change.After.Deadline != 0 {
			soonest = min(soonest, change.After.Deadline)
		}
	}
	s.alarm.advance(soonest)
}

// DueAt tells the sweeper of a deadline that no claim has: that of a session.
func (s *Sweeper) DueAt(deadline claim.Time) { s.alarm.advance(deadline) }

// Missed implements committer.Listener: there may be leases that nobody has told of.
func (s *Sweeper) Missed() { s.alarm.advance(0) }

// Run implements ifrit.Runner. It ends on any signal, without waiting for the database.
func (s *Sweeper) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for live := true; ctx.Err() == nil; {
			live = s.look(ctx, live)
		}
	}()
	close(ready)
	<-signals
	stop()
	<-ended
	return nil
}

// look sweeps when there are live leases, sleeps until the next deadline, and reports whether
// there are any by then.
func (s *Sweeper) look(ctx context.Context, live bool) bool {
	if live && s.report(ctx, s.sweep(ctx)) != nil {
		return s.rest(ctx)
	}
	s.alarm.reset()
	grants := s.committer.Grants()
	next, now, err := s.nextDue(ctx)
	if s.report(ctx, err) != nil {
		return s.rest(ctx)
	}
	s.committer.SetLive(next != 0, grants)
	switch {
	case next != 0 && !live: // another server may have made leases that are due already
		return true
	case next != 0:
		s.alarm.advance(next)
	}
	s.alarm.wait(ctx.Done(), now.Lease, shortPause, longPause)
	return next != 0
}

// rest leaves a database that refuses alone for a while.
func (s *Sweeper) rest(ctx context.Context) (live bool) {
	s.alarm.wait(ctx.Done(), 0, shortPause, shortPause)
	return true
}

func (s *Sweeper) nextDue(ctx context.Context) (next claim.Time, now claim.Instant, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	return s.store.NextDue(ctx, idleGrace)
}

// report logs when the sweep stops working, and when it works again, but not every attempt
// between. It returns err. Where nobody knows whether there are leases, the committer beats, and so learns
// whether the database takes commits.
func (s *Sweeper) report(ctx context.Context, err error) error {
	if err != nil {
		s.committer.SetLive(true, s.committer.Grants())
	}
	switch failing := err != nil; {
	case ctx.Err() != nil || failing == s.failing:
	case failing:
		s.failing = true
		s.log.Warn("leases that run out cannot be ended", "error", err)
	default:
		s.failing = false
		s.log.Info("leases that run out can be ended again")
	}
	return err
}

// sweep goes on while there is more to do than fits into one command. It stops when the database
// refuses: it would be asked for the same again, without a pause.
func (s *Sweeper) sweep(ctx context.Context) error {
	if err := s.detachSilent(ctx); err != nil {
		return err
	}
	for _, r := range s.rounds {
		for more := true; more; {
			var names []string
			var err error
			if names, more, err = r.next(ctx); err != nil {
				return err
			}
			if len(names) == 0 {
				break
			}
			if err := s.end(ctx, r, names); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// next returns the names of what to end, and whether there may be more. Those that are left
// alone take nobody's place.
func (r *round) next(ctx context.Context) (names []string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	maps.DeleteFunc(r.aside, func(_ string, until time.Time) bool { return !time.Now().Before(until) })
	limit := sweepLimit + len(r.aside)
	due, err := r.due(ctx, limit)
	for _, name := range due {
		if _, aside := r.aside[name]; !aside {
			names = append(names, name)
		}
	}
	return names, len(due) >= limit, err
}

// end ends what is due. When that fails for a reason of its own, not of the
// database, what is due is cut in two until what spoils it is alone. That is left alone for a while.
func (s *Sweeper) end(ctx context.Context, r *round, names []string) error {
	switch err := s.do(ctx, r.end(names)); {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, db.ErrUnavailable), errors.Is(err, db.ErrOutcomeUnknown), errors.Is(err, committer.ErrStopping):
		return err
	case len(names) == 1:
		s.log.Error("what has run out cannot be ended", r.what, names[0], "again_in", asideTime, "error", err)
		r.aside[names[0]] = time.Now().Add(asideTime)
		return nil
	}
	half := len(names) / 2
	if err := s.end(ctx, r, names[:half]); err != nil {
		return err
	}
	return s.end(ctx, r, names[half:])
}

// do carries out commands, together in the committer's batches.
func (s *Sweeper) do(ctx context.Context, cmds []claim.Command) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sweepTimeout, db.ErrUnavailable)
	defer cancel()
	errs := make([]error, len(cmds))
	var all sync.WaitGroup
	for i, cmd := range cmds {
		all.Go(func() { _, errs[i] = s.committer.Do(ctx, cmd) })
	}
	all.Wait()
	return errors.Join(errs...)
}
