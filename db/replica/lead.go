package replica

import (
	"context"
	"errors"

	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/record"
)

// A store that is opened while the disk is full serves reads, as a store does whose disk becomes full later: everything in the log of a node by
// itself is committed. It refuses what would change something, and its lease time stands still, until there is room for all that the lead needs:
// the file of its run, the first entries of its term, and the files that SQLite needs for writing. Nothing is decided, or written, before.

// leadBytes is more than the first entries of a term take in the log.
const leadBytes = 4096

// takeLead makes the node lead, so that the store takes commits. When the disk is full nothing has happened, and it may be called again.
func (s *Store) takeLead() error {
	if err := s.openForWriting(); err != nil {
		return err
	}
	return s.campaign()
}

// openForWriting opens the files that a run needs beside the log.
func (s *Store) openForWriting() error {
	if err := s.folder.prepareRun(); err != nil {
		return err
	}
	return s.onTurn(context.Background(), s.history.Reopen)
}

// campaign makes the node lead, and commits the first records of its term, if the log has room for all of them.
func (s *Store) campaign() error {
	if err := s.log.Reserve(leadBytes); err != nil {
		return err
	}
	if err := s.node.raft.Campaign(); err != nil {
		return err
	}
	if err := s.node.run(); err != nil {
		return err
	}
	if s.node.term == 0 {
		return errNotLeader
	}
	if s.state.Lease == 0 { // lease time begins with the time
		begin := s.clock.wallTime()
		if err := s.proposeFirst(&record.Record{Header: record.Header{Wall: begin, Lease: begin}}); err != nil {
			return err
		}
	}
	s.unseen.add(s.beforeOpen())
	if err := s.startRolledBack(); err != nil {
		return err
	}
	s.witness.note(s.applied.index, 0)
	s.lead()
	if s.folder.fresh {
		return s.folder.ready()
	}
	return s.folder.beginRun()
}

// proposeFirst commits a record of a server that starts.
func (s *Store) proposeFirst(r *record.Record) error {
	r.Term = s.node.term
	data, _ := record.Append(nil, s.applied.sum, r)
	return s.node.propose(data)
}

// waitsForRoom reports whether takeLead has failed because the disk is full, and notes the error if so.
func (s *Store) waitsForRoom(err error) bool {
	full := s.node.term == 0 && (errors.Is(err, filelog.ErrFull) || disk.NoRoom(err) || history.NoRoom(err))
	if full {
		s.noRoom.Store(&err)
	}
	return full
}

// lacksRoom returns why the store takes no commits yet, nil if it does.
func (s *Store) lacksRoom() error {
	if err := s.noRoom.Load(); err != nil {
		return *err
	}
	return nil
}

// leadWithRoom makes the node lead if it does not and there is room by now. Its error is not that there is none.
func (s *Store) leadWithRoom() error {
	if s.lacksRoom() == nil {
		return nil
	}
	err := s.openForWriting()
	if err == nil {
		err = s.leadInTurn()
	}
	if err == nil || s.waitsForRoom(err) {
		return nil
	}
	return err
}

// leadInTurn makes the node lead while nobody else uses it.
func (s *Store) leadInTurn() error {
	select {
	case s.writing <- struct{}{}:
		defer s.release()
	case <-s.closed:
		return nil
	}
	if err := s.campaign(); err != nil {
		return err
	}
	s.noRoom.Store(nil)
	s.wake()
	s.options.Log.Info("there is room on the disk: changes are taken")
	return nil
}
