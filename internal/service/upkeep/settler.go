package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// settleInterval is how often the settler checks whether a quarantine has ended.
	settleInterval = 250 * time.Millisecond
	// settleIdle is how often it checks whether there is one: a store may be found to be rolled back while it is used.
	settleIdle = time.Second
	// settleLate is how long after its end, in lease time, a quarantine is settled. After that its waiting claims
	// were granted long ago.
	settleLate = 10 * time.Minute
	settlePage = 256
	// settlePause is the pause after a grant that failed.
	settlePause = 5 * time.Second
	// settleTimeout bounds each request to the database, and each command.
	settleTimeout = 15 * time.Second
)

// Restored is a store that may have been restored from a backup, or rolled back.
type Restored interface {
	db.Clocks
	Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error)
}

// Doer carries out commands. Its error is db.ErrUnavailable, even if it is the server that takes no command.
type Doer func(ctx context.Context, cmd claim.Command) error

// NewSettler returns a runner that grants waiting claims when the quarantine of a store has ended. Their resources are
// free, so no release or expiry would grant them. It ends on any signal, without waiting for the database.
func NewSettler(store Restored, do Doer, log *slog.Logger) ifrit.Runner {
	return ifrit.RunFunc(func(signals <-chan os.Signal, ready chan<- struct{}) error {
		s := &settler{store: store, do: do, log: log}
		return periodic.Until(signals, ready, s.run)
	})
}

type settler struct {
	store Restored
	do    Doer
	log   *slog.Logger
	// after is the last claim that was visited. After an error the settler continues there.
	after string
	// started is the end of the last quarantine seen, and settled the end of the last one that was settled.
	started, settled claim.Time
	// failed is set if a claim before it could not be granted.
	failed bool
}

func (s *settler) run(ctx context.Context) {
	for periodic.Pause(ctx, s.look(ctx)) == nil {
	}
}

// look settles the quarantine of the store, if it has one, and returns when to look again.
func (s *settler) look(ctx context.Context) (pause time.Duration) {
	state := s.store.ClockState()
	end := state.Quarantine
	if end != s.started {
		s.started = end
		if left := end.Sub(state.Lease); left > 0 {
			s.log.Warn("the database was restored from a backup, or rolled back: nothing is granted yet", "for", left)
		} else if left < -settleLate {
			s.settled = end
		}
	}
	switch {
	case end == s.settled:
		return settleIdle
	case !s.ended(ctx, end):
		return settleInterval
	case !s.settle(ctx):
		return settlePause
	}
	s.log.Info("the quarantine has ended")
	s.settled = end
	return settleIdle
}

// ended reports whether the quarantine has ended. It asks the store for the lease time, since no server beats while
// claims only wait.
func (s *settler) ended(ctx context.Context, quarantine claim.Time) bool {
	if s.store.ClockState().Lease.Add(db.MaxSilence) < quarantine {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	now, err := s.store.Now(ctx)
	return err == nil && now.Lease >= quarantine
}

// settle visits all resources with waiting claims, and reports whether it is done. If not, call it again.
func (s *settler) settle(ctx context.Context) (done bool) {
	for {
		switch more, err := s.settlePage(ctx); {
		case err != nil:
			if ctx.Err() == nil {
				s.log.Warn("claims that wait after the quarantine cannot be granted", "error", err)
			}
			return false
		case !more:
			done = !s.failed
			s.after, s.failed = "", false
			return done
		}
	}
}

// settlePage visits the resources of the next page of claims.
func (s *settler) settlePage(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, db.ErrUnavailable)
	defer cancel()
	live, err := s.store.Live(ctx, db.LiveOf{}, db.Page{After: s.after, Limit: settlePage})
	if err != nil || len(live) == 0 {
		return false, err
	}
	if err := s.grant(ctx, contended(live)); err != nil {
		return false, err
	}
	s.after = live[len(live)-1].ID
	return len(live) == settlePage, nil
}

// grant grants the waiting claims of free resources. It returns the errors of the database. A resource that fails for
// another reason is left for later.
func (s *settler) grant(ctx context.Context, resources []string) error {
	if len(resources) == 0 {
		return nil
	}
	err := s.do(ctx, claim.Expire{Resources: resources})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, db.ErrUnavailable), errors.Is(err, db.ErrOutcomeUnknown):
		return err
	case len(resources) == 1:
		s.log.Warn("claims that wait after the quarantine cannot be granted", "resource", resources[0], "error", err)
		s.failed = true
		return nil
	}
	half := len(resources) / 2
	return errors.Join(s.grant(ctx, resources[:half]), s.grant(ctx, resources[half:]))
}

func contended(live []claim.Claim) (resources []string) {
	seen := make(map[string]bool)
	for i := range live {
		if c := &live[i]; c.Status == claim.Waiting && !seen[c.Resource] {
			seen[c.Resource] = true
			resources = append(resources, c.Resource)
		}
	}
	return resources
}
