package upkeep

import (
	"context"
	"errors"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

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
