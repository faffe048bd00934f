package raft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/raft/record"
	"github.com/locket-service/locket/db/raft/state"
	"github.com/locket-service/locket/db/raft/wal"
	"github.com/locket-service/locket/internal/claim"
)

// decision is what a transaction decides in: nothing else is decided or committed meanwhile.
type decision struct {
	at  time.Time
	now claim.Instant
}

// commit is a record on its way to the goroutine that commits.
type commit struct {
	*proposal
	outcome chan<- error
}

// write has decide make a record of what is to change, nil for nothing, and commits it. The end of ctx ends the wait for
// those before it, and for the disk to confirm it, whose outcome is not known then.
func (s *Store) write(ctx context.Context, decide func(decision) (*record.Record, error)) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	made, err := s.decide(decide)
	if err != nil || made == nil {
		return err
	}
	outcome := make(chan error, 1)
	s.commits <- commit{made, outcome} // it is received at once: nobody else commits
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.broken:
		err = s.failed()
	}
	select {
	case err := <-outcome:
		return err
	default:
		return fmt.Errorf("%w: the disk has not confirmed it: %w", db.ErrOutcomeUnknown, err)
	}
}

var errHung = fmt.Errorf("the disk has not written the log for %s", hangTimeout)

// acquire waits until nobody else decides or commits.
func (s *Store) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, context.Cause(ctx))
	}
	if err := s.failed(); err != nil {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: the transaction before this one has not ended: %w", db.ErrUnavailable, context.Cause(ctx))
	case <-s.closed:
		return fmt.Errorf("%w: it has been closed", db.ErrUnavailable)
	}
	if err := s.failed(); err != nil {
		s.release()
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	return nil
}

func (s *Store) release() { <-s.writing }

// decide makes a record. It lets others decide when there is nothing to commit.
func (s *Store) decide(decide func(decision) (*record.Record, error)) (made *proposal, err error) {
	defer func() {
		if made == nil {
			s.release()
		}
	}()
	at := time.Now()
	d := decision{at: at, now: claim.Instant{Wall: claim.Time(at.UnixMicro()), Lease: s.clock.now(at)}}
	r, err := decide(d)
	if err != nil || r == nil {
		return nil, err
	}
	r.Term, r.Seq = s.node.term, s.seq+1
	if r.Lease == 0 {
		r.Lease = d.now.Lease
	}
	// Raft keeps the data of entries, so there is a new buffer for each.
	data, _ := record.Append(nil, s.applied.sum, r)
	return &proposal{r, data, at}, nil
}

// commitAll commits what comes, one after the other.
func (s *Store) commitAll() {
	for c := range s.commits {
		err := s.commit(c.proposal)
		s.release()
		c.outcome <- err
	}
}

func (s *Store) commit(p *proposal) error {
	s.proposed = p
	s.hang.Reset(hangTimeout)
	err := s.node.propose(p.data)
	s.hang.Stop()
	s.proposed = nil
	switch {
	case err == nil && s.seq == p.record.Seq:
		s.wake()
		return nil
	case errors.Is(err, wal.ErrFull):
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	case err == nil:
		err = errors.New("the record was not applied")
	}
	s.fail(err)
	return fmt.Errorf("%w: %w", db.ErrOutcomeUnknown, err)
}

// apply does to the state what an entry says.
func (s *Store) apply(e *pb.Entry) error {
	if err := s.failed(); err != nil { // the disk took too long: its callers have been told that the outcome is not known
		return err
	}
	index, term, data := e.GetIndex(), e.GetTerm(), e.GetData()
	next := position{index, term, s.applied.sum}
	if e.GetType() != pb.EntryNormal || len(data) == 0 {
		s.mu.Lock()
		s.applied = next
		s.mu.Unlock()
		return nil
	}
	var do func(*state.State) ([]claim.Transition, error)
	var header record.Header
	own := s.proposed != nil && bytes.Equal(s.proposed.data, data)
	if own {
		header = s.proposed.record.Header
		do = func(to *state.State) ([]claim.Transition, error) { return to.Apply(s.proposed.record) }
	} else {
		d, err := record.Read(data)
		if err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		header = d.Header
		do = func(to *state.State) ([]claim.Transition, error) { return to.ApplyDecoded(d) }
	}
	void := header.Term != term
	if !void {
		var ok bool
		if next.sum, ok = record.Check(s.applied.sum, data); !ok {
			return fmt.Errorf("entry %d: %w: its checksum does not follow that of the record before", index, state.ErrDiverged)
		}
	}
	changes, err := s.change(next, void, do)
	if err != nil {
		return fmt.Errorf("entry %d: %w", index, err)
	}
	if own && !void {
		s.seq = header.Seq
		s.clock.moved(header.Lease, s.proposed.at)
	}
	if len(changes) > 0 {
		s.Committed(header.Wall, changes)
	}
	return nil
}

// change is the part of apply that readers wait for.
func (s *Store) change(next position, void bool, do func(*state.State) ([]claim.Transition, error)) (changes []claim.Transition, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !void {
		if changes, err = do(s.state); err != nil {
			return nil, err
		}
	}
	s.applied = next
	if next.index > s.pending.written {
		for _, t := range changes {
			if t.After.Status.Final() {
				s.pending.add(next.index, t.After)
			}
		}
	}
	return changes, nil
}
