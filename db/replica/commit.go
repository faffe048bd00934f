package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/state"
	"github.com/locket-service/locket/internal/rules/claim"
)

// decision is the context of a transaction's decision. There is only one at a time.
type decision struct {
	at  time.Time
	now claim.Instant
}

// proposal is a record that was decided. The state has it at once, so that the next one can be decided while this one
// is written. Nobody is told of it before it is committed: readers of the state wait for the last proposal. If it is
// not committed, the state is useless, and the process ends.
type proposal struct {
	record *record.Record
	data   []byte
	sum    uint32
	// epoch and index are where a server of a cluster appends it.
	epoch, index uint64
	at           time.Time
	changes      []claim.Transition
	// unknown says that this server's own caller was told that the outcome is unknown. It may be committed later.
	unknown atomic.Bool
	// done is closed when the record is committed, or will not be: then err says why.
	done chan struct{}
	err  error
	once sync.Once
}

// end records the outcome of the proposal; the first time counts.
func (p *proposal) end(err error) {
	p.once.Do(func() {
		p.err = err
		close(p.done)
	})
}

// maxProposals is how many proposals there are at once: one is written while the next one is decided, and waits.
const maxProposals = 2

// write has decide make a record of changes, nil for none, and commits it. If ctx ends, write stops waiting for earlier
// records, or for the disk; in the latter case the outcome is unknown.
func (s *Store) write(ctx context.Context, decide func(decision) (*record.Record, error)) error {
	p, err := s.begin(ctx, decide)
	if err != nil || p == nil {
		return err
	}
	return s.outcome(ctx, p)
}

// begin is write without the wait for the outcome. It returns nil when there is nothing to commit.
func (s *Store) begin(ctx context.Context, decide func(decision) (*record.Record, error)) (p *proposal, err error) {
	if err := s.acquire(ctx, nil); err != nil {
		return nil, err
	}
	return s.beginOnTurn(ctx, decide)
}

// beginOnTurn is begin for a caller that has acquired the right to decide, and loses it.
func (s *Store) beginOnTurn(ctx context.Context, decide func(decision) (*record.Record, error)) (p *proposal, err error) {
	defer func() {
		if p == nil { // or decide panicked
			<-s.proposals
		}
		s.release()
	}()
	if err := s.noRoom.err(); err != nil {
		return nil, fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	if err := s.keepUp(ctx); err != nil {
		return nil, err
	}
	if p, err = s.decide(ctx, decide); p != nil {
		s.commits <- p // there is room for all proposals
	}
	return p, err
}

// outcome waits until a proposal is committed, for a caller of this server.
func (s *Store) outcome(ctx context.Context, p *proposal) error { return s.await(ctx, p, &p.unknown) }

// await waits until a proposal is committed. Before it returns without knowing that, it sets unknown.
func (s *Store) await(ctx context.Context, p *proposal, unknown *atomic.Bool) (err error) {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.broken:
		err = s.Failure()
	}
	unknown.Store(true)
	select {
	case <-p.done:
		return p.err
	default:
		return fmt.Errorf("%w: the disk has not confirmed it: %w", db.ErrOutcomeUnknown, err)
	}
}

// hung ends all writing, and what is under way, because the disk does not answer.
func (s *Store) hung() {
	s.fail(errHung)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.proposed {
		p.end(fmt.Errorf("%w: the disk has not confirmed it: %w", db.ErrOutcomeUnknown, s.Failure()))
	}
}

var errHung = fmt.Errorf("the disk has not written the log for %s", hangTimeout)

// acquire waits until nobody else decides, and until there may be another proposal. It returns errDecided when decided is closed,
// which is nil for a caller that must decide for itself.
func (s *Store) acquire(ctx context.Context, decided <-chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, context.Cause(ctx))
	}
	for _, turn := range []chan struct{}{s.writing, s.proposals} {
		var err error
		select {
		case turn <- struct{}{}:
			continue
		case <-ctx.Done():
			err = fmt.Errorf("the transaction before this one has not ended: %w", context.Cause(ctx))
		case <-s.broken:
			err = s.Failure()
		case <-s.closed:
			err = errClosed
		case <-decided:
			err = errDecided
		}
		if turn == s.proposals {
			s.release()
		}
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	err := s.Failure()
	select {
	case <-decided:
		err = errDecided
	default:
	}
	if err != nil {
		<-s.proposals
		s.release()
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	return nil
}

// canWrite waits until the transactions before have ended, and returns why this server can begin none.
func (s *Store) canWrite(ctx context.Context) error {
	if err := s.noRoom.err(); err != nil {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	if err := s.acquire(ctx, nil); err != nil {
		return err
	}
	<-s.proposals
	s.release()
	return nil
}

var errClosed = errors.New("it has been closed")

func (s *Store) release() { <-s.writing }

// decide makes a record, and does to the state what it says.
func (s *Store) decide(ctx context.Context, decide func(decision) (*record.Record, error)) (*proposal, error) {
	if s.cluster != nil {
		return s.cluster.decide(decide)
	}
	p, err := s.propose(decide)
	if err != nil || p == nil {
		return nil, err
	}
	before := s.at().sum
	if s.last != nil {
		before = s.last.sum
	}
	p.data, p.sum = record.Append(nil, before, p.record)
	if err := s.reserve(ctx, p); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.changes, err = s.state.Apply(p.record); err != nil {
		s.fail(err)
		return nil, err
	}
	for _, t := range p.changes {
		if t.After.Status.Final() {
			s.pending.expect(t.After)
		}
	}
	s.last = p
	s.proposed = append(s.proposed, p)
	return p, nil
}

// propose returns a proposal with the record that decide makes, nil if it makes none.
func (s *Store) propose(decide func(decision) (*record.Record, error)) (*proposal, error) {
	at := time.Now()
	d := decision{at: at, now: claim.Instant{Wall: s.clock.wallTime(), Lease: s.clock.now(at), Quarantine: s.state.Quarantine}}
	r, err := decide(d)
	if err != nil || r == nil {
		return nil, err
	}
	if r.Lease == 0 {
		r.Lease = d.now.Lease
	}
	return &proposal{record: r, at: at, done: make(chan struct{})}, nil
}

// reserve makes room in the log for a proposal: when the disk is full nothing has happened. If a new file is needed, it
// waits for the proposals before.
func (s *Store) reserve(ctx context.Context, p *proposal) error {
	if s.last != nil {
		select {
		case <-s.last.done:
		default:
			if s.log.Fits(len(p.data), s.proposedBytes()) {
				return nil
			}
		}
		if err := s.outcome(ctx, s.last); err != nil {
			return fmt.Errorf("%w: the transaction before this one: %v", db.ErrUnavailable, err) //nolint:errorlint // of this one nothing has happened
		}
	}
	s.hang.start()
	defer s.hang.stop()
	err := s.makeRoom(len(p.data))
	if err == nil {
		err = s.Failure()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, filelog.ErrFull):
		s.refused.Store(true)
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	default:
		s.fail(err)
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
}

// makeRoom has the log make room for an entry. A disk that does not answer keeps nobody here for longer than hangTimeout.
func (s *Store) makeRoom(bytes int) error {
	if s.log.Fits(bytes) { // that asks nothing of the disk
		return s.log.Reserve(bytes)
	}
	made := make(chan error, 1)
	go func() { made <- s.log.Reserve(bytes) }()
	select {
	case err := <-made:
		return err
	case <-s.broken:
		return s.Failure()
	}
}

// proposedBytes returns how large the entries are that may not be in the log yet.
func (s *Store) proposedBytes() (bytes int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.proposed {
		bytes += len(p.data)
	}
	return bytes
}

// commitAll commits what was decided, one proposal after the other.
func (s *Store) commitAll() {
	for p := range s.commits {
		p.end(s.commit(p))
		<-s.proposals
	}
}

// commit writes a proposal. Without an error it is committed, and the readers see it.
func (s *Store) commit(p *proposal) error {
	if err := s.Failure(); err != nil {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	if s.cluster != nil {
		return s.cluster.commit(p)
	}
	s.hang.start()
	err := s.append(p.data)
	s.hang.stop()
	if err == nil {
		err = s.settle(p)
	}
	if err == nil {
		s.refused.Store(false)
		s.witness.note(s.applied.index, highest(p.changes))
		s.wake()
		return nil
	}
	s.fail(err)
	return fmt.Errorf("%w: %w", db.ErrOutcomeUnknown, err)
}

// highest returns the highest version of some changes.
func highest(changes []claim.Transition) (version uint64) {
	for _, t := range changes {
		version = max(version, t.After.Version)
	}
	return version
}

// append writes a record to the log, durably.
func (s *Store) append(data []byte) error {
	if err := s.log.Append(data); err != nil {
		return err
	}
	return s.folder.stays()
}

// settle notes that the first of the proposals is in the log.
func (s *Store) settle(p *proposal) error {
	if err := s.Failure(); err != nil { // the disk took too long: its callers have been told that the outcome is not known
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proposed = s.proposed[1:]
	s.applied = position{s.applied.index + 1, p.sum}
	s.clock.recorded(p.record.Lease, p.at)
	s.cut(p.record.Cuts)
	s.committed(s.applied.index, p.record.Wall, p.changes, nil)
	return nil
}

// lastDecided returns the last proposal that this server by itself has decided, nil before the first.
func (s *Store) lastDecided() *proposal {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.last
}

// at returns how far the state has got.
func (s *Store) at() position {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.applied
}

// follow applies the next record of the log, which the state does not have, and which ends with an entry. own is its proposal
// if a server of a cluster has decided it.
func (s *Store) follow(index uint64, data []byte, own *proposal) error {
	d, err := record.Read(data)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sum, ok := record.Checksum(s.applied.sum, data)
	if !ok {
		return fmt.Errorf("%w: its checksum does not follow the previous record's", state.ErrDiverged)
	}
	if err := s.compareSums(d.Sums); err != nil {
		return err
	}
	changes, err := s.state.ApplyDecoded(d)
	if err != nil {
		return err
	}
	s.applied = position{index, sum}
	s.wall = max(s.wall, d.Wall)
	decided := time.Now()
	if own != nil {
		decided = own.at
	}
	s.clock.recorded(d.Lease, decided)
	s.cut(d.Cuts)
	for _, t := range changes {
		if t.Before == nil {
			s.pending.forget(t.After.ID)
		}
	}
	s.committed(s.applied.index, d.Wall, changes, s.others(d, own, changes))
	return nil
}

// others returns the changes of a record that no caller of this server learns from the outcome: it has not sent the batch that has
// made them, and has not decided them for itself.
func (s *Store) others(d *record.Decoded, decided *proposal, changes []claim.Transition) (others []claim.Transition) {
	if s.cluster == nil {
		return nil
	}
	for _, b := range d.Batches {
		if !s.cluster.forwarder.answers(b.Origin) {
			others = append(others, changes[:b.Claims]...)
		}
		changes = changes[b.Claims:]
	}
	if decided == nil || decided.unknown.Load() {
		others = append(others, changes...)
	}
	return others
}

// committed passes on the changes of an entry. others are the ones that this server's callers do not learn otherwise.
func (s *Store) committed(index uint64, wall claim.Time, changes, others []claim.Transition) {
	if index > s.pending.written {
		for _, t := range changes {
			if t.After.Status.Final() {
				s.pending.add(index, t.After)
			}
		}
	}
	if len(changes) > 0 || s.cluster != nil {
		s.Committed(wall, changes, others)
	}
}
