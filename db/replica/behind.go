package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/snapshot"
)

// wake has the work behind the commits done, soon.
func (s *Store) wake() {
	select {
	case s.work <- struct{}{}:
	default: // it is awake
	}
}

// workBehind writes the history and makes snapshots, beside the commits. What fails is tried again after retryWork, or
// the next commit, and reported.
func (s *Store) workBehind() {
	for {
		select {
		case <-s.closed:
			return
		case <-s.work:
		}
		select {
		case <-s.closed:
			return
		case <-s.hurry:
		case <-time.After(s.options.Delay):
		}
		if s.Failure() != nil {
			return
		}
		s.slow.Reset(slowWork)
		err := errors.Join(s.writeHistory(), s.log.SaveEnd(), s.snapshotIfLarge())
		s.slow.Stop()
		if errors.Is(err, errClosed) {
			return
		}
		if s.report(err); err != nil {
			time.AfterFunc(retryWork, s.wake)
		}
		s.mu.Lock()
		s.wakeCommits()
		s.mu.Unlock()
	}
}

// wakeCommits wakes the commits that wait for the history. The caller has mu.
func (s *Store) wakeCommits() {
	close(s.workDone)
	s.workDone = make(chan struct{})
}

// keepUp waits while the history lags far behind, so that it gets all ended claims: large claims end faster than it is
// written. It does not wait for a history that cannot be written, or has taken nothing for hangTimeout. A missing or
// slow snapshot does not matter.
func (s *Store) keepUp(ctx context.Context) error {
	for {
		s.mu.RLock()
		late, workDone := s.pending.late, s.workDone
		s.mu.RUnlock()
		left := hangTimeout - time.Since(late)
		if late.IsZero() || left <= 0 || s.refusing.Load() {
			return nil
		}
		select {
		case s.hurry <- struct{}{}:
		default: // it does
		}
		s.wake()
		select {
		case <-workDone:
		case <-time.After(left):
		case <-s.broken:
			return nil
		case <-s.closed:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: the history is behind: %w", db.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// retryWork is how long after it has failed the work behind the commits is tried again.
const retryWork = 5 * time.Second

var errSlow = fmt.Errorf("the disk has not written the history, or a snapshot, for %s", slowWork)

// report records the outcome of background work, and logs changes.
func (s *Store) report(err error) {
	before := s.trouble.set(err)
	switch {
	case err != nil && before == nil:
		s.options.Log.Error("the history or a snapshot cannot be written; the locks go on", "error", err)
	case err == nil && before != nil:
		s.options.Log.Info("the history and snapshots are written again")
	}
}

// warnings returns problems to fix although commits go on.
func (s *Store) warnings() []string {
	warnings := s.history.Damage()
	if s.noRoom.err() != nil {
		warnings = append(warnings, "the disk was full when the server was started: nothing is written until there is room, and no lease ends")
	}
	if s.trouble.err() == nil {
		return warnings
	}
	warnings = append(warnings, "the history or a snapshot cannot be written (the log says why): claims that have ended are kept in memory, and a restart loses the ones that the log has no room for")
	s.mu.RLock()
	defer s.mu.RUnlock()
	if gap := s.pending.gap; gap != nil {
		warnings = append(warnings, fmt.Sprintf("%d claims that have ended were given up: the history will not have them", gap.Claims))
	}
	return warnings
}

// onTurn calls do with the right to write behind the commits. The end of ctx ends the wait for those before it.
func (s *Store) onTurn(ctx context.Context, do func() error) error {
	select {
	case s.behind <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.behind }()
	if ctx.Err() != nil { // the store may be closed by now
		return context.Cause(ctx)
	}
	return do()
}

// beside runs do on a goroutine and returns its error, or ctx's if that ends first; do then runs on and its result is
// dropped.
func beside(ctx context.Context, do func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeHistory writes to the history what has ended by now.
func (s *Store) writeHistory() error { return s.onTurn(context.Background(), s.writeEnded) }

// writeEnded is writeHistory for a caller that has the right to write.
func (s *Store) writeEnded() error {
	s.mu.RLock()
	ended, gap, entry := s.pending.ended, s.pending.gap, s.applied.index
	s.mu.RUnlock()
	if len(ended) == 0 && gap == nil && s.history.Tidied() {
		return nil
	}
	return s.writeUpTo(entry)
}

// writeUpTo writes what has ended up to an entry that was applied.
func (s *Store) writeUpTo(entry uint64) error {
	s.mu.RLock()
	ended := s.pending.ended
	var gap *history.Gap
	if s.pending.gap != nil {
		gap = new(*s.pending.gap)
	}
	s.mu.RUnlock()
	for n, e := range ended {
		if e.Entry > entry {
			ended = ended[:n]
			break
		}
	}
	err := s.history.Write(ended, entry, gap)
	if s.refusing.Store(err != nil); err != nil {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	s.mu.Lock()
	s.pending.done(entry, gap)
	s.wakeCommits()
	s.mu.Unlock()
	return nil
}

// snapshotIfLarge makes a snapshot when the log has grown enough since the last one.
func (s *Store) snapshotIfLarge() error {
	return s.onTurn(context.Background(), func() error {
		if s.log.Bytes()-s.merged < s.snapshotBytes() {
			return nil
		}
		return s.makeSnapshot()
	})
}

// A log of less than one in logShare of a large snapshot is not merged into the next one: each merge rewrites the whole
// snapshot, and the disk would not keep up.
const logShare = 8

// snapshotBytes returns how much of the log is made into a snapshot.
func (s *Store) snapshotBytes() int { return max(s.options.SnapshotBytes, s.size/logShare) }

// makeSnapshot makes a snapshot of the committed state, and lets the log forget everything that is in it and in the
// history. The history is written first: a server that is started on a snapshot reads the log from there on, and does
// not see claims that ended before. While it cannot be written there is no snapshot, until the log has Options.LogBytes, or twice the size
// of a snapshot. Then claims that have ended are in memory alone, and are lost with this process: the snapshot says how many, so that the
// history gets a gap, and is not taken for an older one. A log that has grown large for lack of snapshots is merged in steps. The caller
// must have the right to write behind the commits.
func (s *Store) makeSnapshot() error {
	s.mu.RLock()
	at := s.applied
	s.mu.RUnlock()
	if s.cluster != nil { // otherwise the log might end before the snapshot after a power cut
		if err := s.log.SaveEnd(); err != nil {
			return err
		}
	}
	old := s.snapshotted.Load()
	if at.index == old {
		return nil
	}
	unwritten := s.writeUpTo(at.index)
	if unwritten != nil {
		if s.log.Bytes()-s.merged < max(s.options.LogBytes, 2*s.snapshotBytes()) {
			return unwritten
		}
	}
	for old < at.index {
		to, err := s.endOfRecord(s.log.Step(old, at.index, 2*s.snapshotBytes()), at.index) // mostly all
		if err != nil {
			return errors.Join(unwritten, err)
		}
		m, err := s.merge(old, to)
		if err == nil && to == at.index && m.Sum != at.sum {
			err = fmt.Errorf("%w: entry %d", snapshot.ErrDiverged, to)
		}
		if err != nil {
			return err
		}
		s.noteSnapshot(m)
		_, err = snapshot.Latest(s.snapshots) // the one before is not needed any more
		err = errors.Join(err, s.log.Compact(to))
		if s.merged = s.log.Bytes(); err != nil {
			return errors.Join(unwritten, err)
		}
		old = to
	}
	return unwritten
}

// endOfRecord returns the first entry from one on that is not followed by another part of its record. The last one is not.
func (s *Store) endOfRecord(entry, last uint64) (uint64, error) {
	for ; entry < last; entry++ {
		next, err := s.log.Entries(entry+1, entry+2, 0)
		if err != nil {
			return 0, err
		}
		if !record.GoesOn(next[0]) {
			break
		}
	}
	return entry, nil
}

// merge makes the snapshot of an entry from an older one. Its memory use depends on the log between the two.
func (s *Store) merge(old, to uint64) (snapshot.Meta, error) {
	s.rested = time.Now()
	m := snapshot.Meta{Log: s.folder.log, Index: to, History: s.history.Entry()}
	s.mu.RLock()
	m.Missing = s.pending.upTo(to)
	s.mu.RUnlock()
	return snapshot.Merge(s.snapshots, old, m, s.records, s.goesOn)
}

// goesOn is called while a snapshot is made, which takes long for very many claims. It returns errClosed when the store is being closed, and
// writes the history when commits wait for it.
func (s *Store) goesOn() error {
	if s.slow.Stop() { // the disk has taken something
		s.slow.Reset(slowWork)
	}
	s.mu.RLock()
	late := s.pending.late
	s.mu.RUnlock()
	if late.IsZero() || s.refusing.Load() { // commits do not wait
		return s.rest()
	}
	return s.writeEnded()
}

// shift is how long a snapshot is made without a rest, and restShare how many times as long the rest is, up to longestRest.
const (
	shift       = 20 * time.Millisecond
	restShare   = 4
	longestRest = 500 * time.Millisecond
)

// rest has a snapshot take a fifth of the time, unless the log has grown too large. Otherwise the servers of a cluster, which make theirs at
// the same time, take the processors and the disks from their callers. The caller of rest has the right to write behind the commits.
func (s *Store) rest() error {
	worked := time.Since(s.rested)
	if worked < shift {
		return nil
	}
	if s.log.Bytes()-s.merged > 2*s.snapshotBytes() {
		worked = 0
	}
	select {
	case <-s.closed:
		return errClosed
	case <-time.After(min(restShare*worked, longestRest)):
		s.rested = time.Now()
		return nil
	}
}

// mergeBytes is how much of the log a snapshot reads at once.
const mergeBytes = 4 << 20

// records is snapshot.Entries of the log.
func (s *Store) records(from, to uint64, yield func(data []byte) error) error {
	return records(s.log, new(record.Joiner), from, to, func(_ uint64, data []byte) error { return errors.Join(s.goesOn(), yield(data)) })
}

// records calls yield for the records whose last entries lie between two, both included, with the index of that entry.
func records(l *filelog.Log, joiner *record.Joiner, from, to uint64, yield func(index uint64, data []byte) error) error {
	for from = max(from, l.First()); from <= to; {
		entries, err := l.Entries(from, to+1, mergeBytes)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			data, err := joiner.Add(entry)
			if err == nil && data != nil {
				err = yield(from, data)
			}
			if err != nil {
				return fmt.Errorf("entry %d: %w", from, err)
			}
			from++
		}
	}
	return nil
}
