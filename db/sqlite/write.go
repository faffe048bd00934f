package sqlite

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db"
)

// write runs fn in a transaction, and committed, if it is not nil, when the transaction has been
// committed; both have the writing connection for themselves. The end of ctx ends the wait for
// it, the statements of fn (before their next step), and the wait for the disk to confirm the
// commit, whose outcome is not known then. It does not end a system call within fn: a read of a
// disk that does not answer lasts as long as the disk takes.
func (s *Store) write(ctx context.Context, fn func() error, committed func()) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	if err := translate(s.begin(ctx, fn)); err != nil {
		if errors.Is(err, db.ErrUnavailable) && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		return err
	}
	outcome := make(chan error, 1)
	go func() {
		defer s.release()
		err := s.commit()
		switch {
		case err != nil:
			s.abandon()
		case committed != nil:
			committed()
		}
		outcome <- err
	}()
	select {
	case err := <-outcome:
		return commitError(err)
	case <-ctx.Done():
	}
	select {
	case err := <-outcome:
		return commitError(err)
	default:
		return fmt.Errorf("%w: the disk has not confirmed it: %w", db.ErrOutcomeUnknown, context.Cause(ctx))
	}
}

// commitError returns what a commit that failed is answered with. The end of a transaction is written to the log
// last, so it was not done if there was no room for that, or if the write was refused. After any other
// failure, such as a sync that failed, it may be in the log, and count after a restart: until the next
// commit, which is written in its place.
func commitError(err error) error {
	if err == nil {
		return nil
	}
	switch code := sqlite.ErrCode(err); code.ToPrimary() {
	case sqlite.ResultFull, sqlite.ResultBusy:
		return translate(err)
	default:
		if code == sqlite.ResultIOErrWrite {
			return translate(err)
		}
		return fmt.Errorf("%w: %w", db.ErrOutcomeUnknown, err)
	}
}

// acquire waits for the writing connection.
func (s *Store) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, context.Cause(ctx))
	}
	select {
	case s.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: the transaction before this one has not ended: %w", db.ErrUnavailable, context.Cause(ctx))
	case <-s.closed:
		return fmt.Errorf("%w: it has been closed", db.ErrUnavailable)
	}
}

func (s *Store) release() { <-s.writing }

// begin runs fn in a new transaction. When that fails it rolls back, and releases the
// connection.
func (s *Store) begin(ctx context.Context, fn func() error) (err error) {
	ready := false
	defer func() {
		s.conn.SetInterrupt(nil) // a transaction that was interrupted is rolled back all the same
		if !ready {
			s.abandon()
			s.release()
		}
	}()
	if err := s.file.check(); err != nil {
		return err
	}
	s.conn.SetInterrupt(ctx.Done())
	if err := run(s.writer.begin); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	ready = true
	return nil
}

// abandon rolls back. Some errors have rolled back already.
func (s *Store) abandon() {
	if !s.conn.AutocommitEnabled() {
		_ = run(s.writer.rollback)
	}
}
