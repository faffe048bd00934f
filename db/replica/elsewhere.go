package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// While the history of a server is incomplete, a server with a complete one answers for it.

// findElsewhere returns the ended claim with an id that this server's history may lack, nil if there is none.
func (s *Store) findElsewhere(ctx context.Context, id string) (*claim.Claim, error) {
	done, _, err := s.readElsewhere(ctx, record.Query{ID: id})
	if err != nil || len(done.Claims) == 0 || !done.Claims[0].Status.Final() {
		return nil, err
	}
	return &done.Claims[0], nil
}

// readElsewhere has another server read if this server's history is incomplete. It has not asked if no other one has said that it has more.
func (s *Store) readElsewhere(ctx context.Context, read record.Query) (done record.Done, asked bool, err error) {
	if s.cluster == nil || s.HistoryComplete() {
		return done, false, nil
	}
	message, err := record.WriteJob(&record.Job{Read: &read})
	if err != nil {
		return done, true, err
	}
	announced, err := s.cluster.announced(ctx)
	if err != nil {
		return done, true, err
	}
	var failed error
	for _, a := range announced {
		if !a.Complete || len(a.About) == 0 || bytes.Equal(a.About, s.cluster.Peers.About()) {
			continue
		}
		outcome, err := s.cluster.Peers.CarryOut(ctx, a.About, message)
		if err == nil {
			done, err = record.ReadDone(outcome)
			return done, true, err
		}
		if ctx.Err() != nil {
			return done, true, context.Cause(ctx)
		}
		failed = errors.Join(failed, fmt.Errorf("server %s: %w", a.Name, err))
	}
	if failed != nil {
		err = fmt.Errorf("%w: this server does not have all claims that have ended, and has asked another one: %v", db.ErrUnavailable, failed) //nolint:errorlint // nothing has changed
	}
	return done, failed != nil, err
}

// readForOther reads for another server.
func (s *Store) readForOther(ctx context.Context, read record.Query) (done record.Done, err error) {
	if !s.HistoryComplete() {
		return done, fmt.Errorf("%w: this server does not have all claims that have ended either", db.ErrUnavailable)
	}
	if read.ID == "" {
		done.Claims, done.Now, err = s.List(ctx, read.Filter)
		return done, err
	}
	c, _, now, err := s.Get(ctx, read.ID, 0)
	if done.Now = now; errors.Is(err, claim.ErrNotFound) {
		return done, nil
	}
	done.Claims = []claim.Claim{c}
	return done, err
}
