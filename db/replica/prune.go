package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Remember implements db.Pruner. What it has begun goes on when ctx ends.
func (s *Store) Remember(ctx context.Context, now claim.Instant) ([]claim.Instant, error) {
	return inHistory(ctx, s, func() ([]claim.Instant, error) { return s.history.Remember(now) })
}

// Prune implements db.Pruner. The decider chooses the claims and writes a record.Cut, which every server applies in its place in the
// log: so all have the same history. What it has begun goes on when ctx ends.
func (s *Store) Prune(ctx context.Context, before claim.Time, limit int) (int, error) {
	if s.cluster != nil {
		done, err := s.cluster.ask(ctx, record.Job{Prune: &record.Prune{Ended: true, Before: before, Limit: limit}})
		return done.Deleted, err
	}
	return s.prune(ctx, before, limit)
}

func (s *Store) prune(ctx context.Context, before claim.Time, limit int) (n int, err error) {
	var cut record.Cut
	n, err = inHistory(ctx, s, func() (n int, err error) {
		if err = s.writeEnded(); err == nil {
			cut, n, err = s.history.Oldest(before, limit)
		}
		return n, err
	})
	if err != nil || n == 0 {
		return 0, err
	}
	err = s.write(ctx, func(d decision) (*record.Record, error) {
		if !s.state.Cuts().Takes(cut) {
			n = 0
			return nil, nil
		}
		return &record.Record{Header: record.Header{Wall: d.now.Wall}, Cuts: []record.Cut{cut}}, nil
	})
	if err != nil {
		return 0, err
	}
	return inHistory(ctx, s, func() (int, error) { return n, s.history.Tidy() })
}

// cut applies cuts that are committed. The caller has mu.
func (s *Store) cut(cuts record.Cuts) {
	for _, c := range cuts {
		s.history.Cut(c)
	}
	if len(cuts) > 0 {
		s.pending.cut(cuts)
	}
}

// inHistory runs do, which writes in the history, while nobody else writes there.
func inHistory[T any](ctx context.Context, s *Store, do func() (T, error)) (T, error) {
	result := make(chan T, 1)
	err := beside(ctx, func() error {
		return s.onTurn(ctx, func() error {
			done, err := do()
			result <- done
			return err
		})
	})
	switch {
	case err == nil:
		return <-result, nil
	case !errors.Is(err, db.ErrUnavailable):
		err = fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	var none T
	return none, err
}

// PruneResources implements db.Pruner.
func (s *Store) PruneResources(ctx context.Context, after string, before claim.Time, limit int) (next string, err error) {
	if s.cluster != nil {
		done, err := s.cluster.ask(ctx, record.Job{Prune: &record.Prune{After: after, Before: before, Limit: limit}})
		return done.Next, err
	}
	return s.pruneResources(ctx, after, before, limit)
}

func (s *Store) pruneResources(ctx context.Context, after string, before claim.Time, limit int) (next string, err error) {
	err = s.write(ctx, func(d decision) (*record.Record, error) {
		r := &record.Record{Header: record.Header{Wall: d.now.Wall}}
		if r.Rows, next = s.state.Unused(after, before, limit); len(r.Rows) == 0 {
			return nil, nil
		}
		return r, nil
	})
	return next, err
}
