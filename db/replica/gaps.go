package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/history"
)

// HistoryComplete reports whether the history has all claims that have ended, except for deleted ones. Otherwise an unknown claim may be one
// that another server has.
func (s *Store) HistoryComplete() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pending.gap == nil && s.history.Complete()
}

// SendHistory answers a request of ReceiveHistory on another server. It calls send for each part of the answer. It returns
// db.ErrUnavailable if the history does not have all that is asked for.
func (s *Store) SendHistory(ctx context.Context, request []byte, send func(part []byte) error) error {
	err := s.history.Send(ctx, request, send)
	if errors.Is(err, history.ErrIncomplete) { // while nothing ends, the file need not say how far it has got
		err = s.whileOpen(ctx, func() error {
			s.mu.RLock()
			at := s.applied.index
			s.mu.RUnlock()
			return s.writeUpTo(at)
		})
		if err == nil {
			err = s.history.Send(ctx, request, send)
		}
	}
	if errors.Is(err, history.ErrIncomplete) || errors.Is(err, history.ErrUnreadable) {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	return err
}

// ReceiveHistory fills the gaps of the history with the claims of another server. ask sends a request to the other server's
// SendHistory, and calls part for each part of the answer. After an error the next call goes on with the claims that are missing
// still, also after a restart, and with another server.
func (s *Store) ReceiveHistory(ctx context.Context, ask func(request []byte, part func([]byte) error) error) error {
	if err := s.whileOpen(ctx, s.writeEnded); err != nil { // a gap too
		return err
	}
	for {
		more, err := s.history.Receive(ask, func(write func() error) error { return s.whileOpen(ctx, write) })
		if err != nil || !more {
			return err
		}
	}
}

// whileOpen is onTurn for a caller that Close does not wait for.
func (s *Store) whileOpen(ctx context.Context, do func() error) error {
	return s.onTurn(ctx, func() error {
		select {
		case <-s.closed: // otherwise Close waits for this turn
			return fmt.Errorf("%w: %w", db.ErrUnavailable, errClosed)
		default:
			return do()
		}
	})
}
