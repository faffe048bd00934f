// Package upkeep has the background work on the database. The Sweeper ends leases that have run out. The Janitor deletes
// old history. The granter grants claims that no release grants, as when a quarantine has ended. All are ifrit runners.
package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/outage"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
)

const (
	// shortPause is the least time between two requests to the database, longPause the greatest: another server may have
	// made leases and failed.
	shortPause = 50 * time.Millisecond
	longPause  = time.Second
	// idleGrace is how long a lease that has run out is kept while no claim waits for it, so that a renewal that is a
	// little late still succeeds.
	idleGrace  = 500 * time.Millisecond
	sweepLimit = 256
	// sweepTimeout bounds each request to the database, and each command.
	sweepTimeout = 15 * time.Second
	// asideTime is how long a resource is skipped after its leases could not be ended.
	asideTime = 10 * time.Second
)

// Leases is a store as the sweeper needs it.
type Leases interface {
	db.Due
	// DetachSilent comes from db.Sessions.
	DetachSilent(ctx context.Context, silence time.Duration) (detached int, err error)
}

// Sweeper ends leases that have run out, at once if claims wait, otherwise after idleGrace. It aborts waiting claims that
// nobody asks about, ends sessions that nobody resumes, with their claims, and detaches the sessions of servers that
// have failed. It sleeps until the next deadline, at most longPause.
type Sweeper struct {
	store     Leases
	committer *committer.Committer
	log       *slog.Logger
	alarm     *alarm
	sessions  *round
	rounds    []*round // the others
	outages   *outage.Log
	// swept has the error of the last sweep of sessions while none is under way, and failed the last one that was read.
	swept  chan error
	failed error
	// commits counts transactions.
	commits atomic.Int64
	looked  atomic.Pointer[time.Time] // see Looked
	// locked logs that somebody keeps a session of a failed server locked, and detachAfter is when to look again. The
	// sweep of sessions uses them.
	locked      *outage.Log
	detachAfter time.Time
}

// round is the sweep of one kind: claims, sessions or waits.
type round struct {
	what string // is named by the names
	// late has the error of a command that takes longer than sweepTimeout.
	late error
	due  func(ctx context.Context, limit int) (names []string, err error)
	end  func(names []string) []claim.Command
	// aside has the names that could not be ended, and until when each is skipped.
	aside map[string]time.Time
}

// NewSweeper returns a sweeper of the store that sends commands to the committer. It listens to the committer for new
// deadlines.
func NewSweeper(store Leases, queues *committer.Committer, log *slog.Logger) *Sweeper {
	s := &Sweeper{store: store, committer: queues, log: log, alarm: newAlarm(), swept: make(chan error, 1)}
	s.looked.Store(new(time.Now()))
	s.swept <- nil
	s.outages = outage.New(log, slog.LevelWarn, "expired leases cannot be ended", "expired leases can be ended again")
	s.locked = outage.New(log, slog.LevelWarn, "a session of a server that is gone cannot be detached", "the sessions of servers that are gone can be detached again")
	s.sessions = &round{
		what: "session",
		late: errUnfinished,
		due: func(ctx context.Context, limit int) ([]string, error) {
			overdue, err := store.Due(ctx, db.DueQuery{Sessions: limit})
			return overdue.Sessions, err
		},
		end: endSessions,
	}
	s.rounds = []*round{{
		what: "resource",
		late: db.ErrUnavailable,
		due: func(ctx context.Context, limit int) ([]string, error) {
			overdue, err := s.overdue(ctx, db.DueQuery{Idle: idleGrace, Resources: limit})
			return overdue.Resources, err
		},
		end: func(names []string) []claim.Command { return []claim.Command{claim.Expire{Resources: names}} },
	}, {
		what: "claim",
		late: db.ErrUnavailable,
		due: func(ctx context.Context, limit int) ([]string, error) {
			overdue, err := s.overdue(ctx, db.DueQuery{Waiters: limit})
			return overdue.Waiters, err
		},
		end: func(ids []string) []claim.Command { return []claim.Command{claim.Expire{Waiters: ids}} },
	}}
	for _, r := range append(s.rounds, s.sessions) {
		r.aside = make(map[string]time.Time)
	}
	queues.Listen(s)
	return s
}

// Committed implements committer.Listener.
func (s *Sweeper) Committed(_ claim.Instant, changes []claim.Transition) {
	s.commits.Add(1)
	soonest := never
	for _, change := range changes {
		if change.After.Status.Live() && change.After.Deadline != 0 {
			soonest = min(soonest, change.After.Deadline)
		}
	}
	s.alarm.advance(soonest)
}

// DueAt adds the deadline of a session.
func (s *Sweeper) DueAt(deadline claim.Time) { s.alarm.advance(deadline) }

// Missed implements committer.Listener: there may be leases that nobody has reported.
func (s *Sweeper) Missed() { s.alarm.advance(0) }

// Run implements ifrit.Runner. It ends on any signal, without waiting for the database.
func (s *Sweeper) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return periodic.Until(signals, ready, func(ctx context.Context) {
		for live := true; ctx.Err() == nil; {
			live = s.look(ctx, live)
		}
		s.failed = <-s.swept
	})
}

// look sweeps if there are live leases, sleeps until the next deadline, and reports whether there are live leases then.
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

// rest pauses after an error of the database.
func (s *Sweeper) rest(ctx context.Context) (live bool) {
	s.alarm.wait(ctx.Done(), 0, shortPause, shortPause)
	return true
}

func (s *Sweeper) nextDue(ctx context.Context) (next claim.Time, now claim.Instant, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	overdue, err := s.overdue(ctx, db.DueQuery{Idle: idleGrace})
	return overdue.Next, overdue.Now, err
}

// overdue asks the store about leases, and notes when it has answered. Sessions are swept beside the leases.
func (s *Sweeper) overdue(ctx context.Context, query db.DueQuery) (db.Overdue, error) {
	overdue, err := s.store.Due(ctx, query)
	if err == nil {
		s.looked.Store(new(time.Now()))
	}
	return overdue, err
}

// Looked returns when the sweeper last looked for leases that have run out, with an answer, or when it was made.
func (s *Sweeper) Looked() time.Time { return *s.looked.Load() }

// report notes whether the sweep works, and returns err. While nobody knows whether there are leases, the committer
// beats, which shows whether the database takes commits.
func (s *Sweeper) report(ctx context.Context, err error) error {
	if err != nil {
		s.committer.SetLive(true, s.committer.Grants())
	}
	if ctx.Err() == nil {
		s.outages.Report(err)
	}
	return err
}

// sweep ends everything that is due. Sessions end concurrently: they may have so many claims that they end in
// thousands of transactions, and a locked row may hold up only sessions or only claims. It returns the last error of
// either.
func (s *Sweeper) sweep(ctx context.Context) error {
	select {
	case s.failed = <-s.swept:
		go func() { s.swept <- s.sweepSessions(ctx) }()
	default: // the last sweep of sessions is still running
	}
	return errors.Join(s.failed, s.endDue(ctx, s.rounds...))
}

// endDue ends all that is due of some kinds. It stops at an error of the database.
func (s *Sweeper) endDue(ctx context.Context, rounds ...*round) error {
	for _, r := range rounds {
		if err := s.endRound(ctx, r); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// endRound ends due items of one kind, in several commands if necessary. Items that are still due after their
// command, because their row is locked or they need more commands, are left to the next sweep.
func (s *Sweeper) endRound(ctx context.Context, r *round) error {
	tried := make(map[string]bool)
	for more := true; more; {
		var names []string
		var err error
		if names, more, err = r.next(ctx, tried); len(names) == 0 || err != nil {
			return err
		}
		if err := s.end(ctx, r, names); err != nil {
			return err
		}
		for _, name := range names {
			tried[name] = true
		}
	}
	return nil
}

// next returns up to sweepLimit names to end, and whether there may be more. Skipped and tried names do not count; of the tried
// names only the due ones stay.
func (r *round) next(ctx context.Context, tried map[string]bool) (names []string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	maps.DeleteFunc(r.aside, func(_ string, until time.Time) bool { return !time.Now().Before(until) })
	limit := sweepLimit + len(r.aside) + len(tried)
	due, err := r.due(ctx, limit)
	again := make(map[string]bool)
	for _, name := range due {
		_, aside := r.aside[name]
		switch {
		case tried[name]:
			again[name] = true
		case !aside:
			names = append(names, name)
		}
	}
	maps.DeleteFunc(tried, func(name string, _ bool) bool { return !again[name] })
	more = len(due) >= limit || len(names) > sweepLimit
	return names[:min(len(names), sweepLimit)], more, err
}

// end ends due items. A name that makes its command fail is skipped for a while.
func (s *Sweeper) end(ctx context.Context, r *round, names []string) error {
	return committer.Isolate(ctx, names, func(names []string) error { return s.do(ctx, r, names) }, func(name string, err error) {
		s.log.Error("expired claims or sessions cannot be ended", r.what, name, "again_in", asideTime, "error", err)
		r.aside[name] = time.Now().Add(asideTime)
	})
}

// errUnfinished ends the wait for sessions that have so many claims together that they end in very many transactions. What is left of them is due
// again soon.
var errUnfinished = errors.New("sessions with many claims are ending")

// do carries out the commands of a round at once, so that the committer batches them.
func (s *Sweeper) do(ctx context.Context, r *round, names []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sweepTimeout, r.late)
	defer cancel()
	cmds, commits := r.end(names), s.commits.Load()
	errs := make([]error, len(cmds))
	var all sync.WaitGroup
	for i, cmd := range cmds {
		all.Go(func() {
			_, err := s.committer.Do(ctx, cmd)
			switch {
			case !errors.Is(err, errUnfinished):
				errs[i] = err
			case s.commits.Load() == commits: // none of them has started to end
				errs[i] = fmt.Errorf("%w: nothing was committed within %s", db.ErrUnavailable, sweepTimeout)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// SessionExpired is the reason of claims whose session was not resumed in time.
const SessionExpired = "the session was not resumed in time"

// endSessions returns the commands that end sessions that are due, with their claims.
func endSessions(ids []string) (cmds []claim.Command) {
	for _, id := range ids {
		cmds = append(cmds, claim.EndSession{ID: id, OnlyDue: true, Active: claim.Expired, Waiting: claim.Aborted, Reason: SessionExpired})
	}
	return cmds
}

// sweepSessions detaches the sessions of servers that are gone, and ends due sessions.
func (s *Sweeper) sweepSessions(ctx context.Context) error {
	silent := s.detachSilent(ctx)
	return errors.Join(silent, s.endDue(ctx, s.sessions))
}

// detachSilent detaches the sessions of servers that no longer beat. While a row is locked it retries after longPause.
func (s *Sweeper) detachSilent(ctx context.Context) error {
	if time.Now().Before(s.detachAfter) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	n, err := s.store.DetachSilent(ctx, db.ServerTimeout)
	if n > 0 {
		s.log.Info("the sessions of a server that is gone are detached", "sessions", n)
	}
	if errors.Is(err, db.ErrRowLocked) {
		s.detachAfter = time.Now().Add(longPause)
		s.locked.Report(err)
		return nil
	}
	if err == nil {
		s.locked.Report(nil)
	}
	return err
}
