package replica

import (
	"context"
	"errors"

	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/record"
)

// A store that is opened while the disk is full serves reads, as a store does whose disk becomes full later: what is in the log is committed. It
// refuses what would change something, and its lease time stands still, until there is room for all that a run begins with: its file, the first
// records, and the files that SQLite needs for writing. Nothing is decided, or written, before.

// beginBytes is more than the first records of a run take in the log.
const beginBytes = 4096

// startWriting makes the store take commits. When the disk is full nothing has happened, and it may be called again.
func (s *Store) startWriting() error {
	if err := s.openForWriting(); err != nil {
		return err
	}
	return s.beginRun()
}

// openForWriting opens the files that a run needs beside the log.
func (s *Store) openForWriting() error {
	if err := s.folder.prepareRun(); err != nil {
		return err
	}
	return s.onTurn(context.Background(), s.history.Reopen)
}

// beginRun commits the first records of a run, if the log has room for all of them, and writes down that the run uses the folder.
func (s *Store) beginRun() error {
	if s.cluster != nil {
		return s.beginFolder()
	}
	if err := s.log.Reserve(beginBytes); err != nil {
		return err
	}
	s.started = true
	if s.state.Lease == 0 { // lease time begins with the time
		now := s.clock.wallTime()
		if err := s.appendFirst(&record.Record{Header: record.Header{Wall: now, Lease: now}}); err != nil {
			return err
		}
	}
	s.unseen.add(s.beforeOpen())
	if err := s.startRolledBack(); err != nil {
		return err
	}
	s.witness.note(s.applied.index, 0)
	s.clock.start(s.state.Lease)
	return s.beginFolder()
}

// beginFolder writes down that a new run uses the folder.
func (s *Store) beginFolder() error {
	if s.folder.fresh {
		return s.folder.ready()
	}
	return s.folder.beginRun()
}

// appendFirst commits a record of a run that begins.
func (s *Store) appendFirst(r *record.Record) error {
	data, _ := record.Append(nil, s.applied.sum, r)
	if err := s.append(data); err != nil {
		return err
	}
	return s.follow(s.log.Last(), data, nil)
}

// waitsForRoom reports whether startWriting has failed because the disk is full, and notes the error if so.
func (s *Store) waitsForRoom(err error) bool {
	full := !s.started && (errors.Is(err, filelog.ErrFull) || disk.NoRoom(err) || history.NoRoom(err))
	if full {
		_ = s.noRoom.set(err)
	}
	return full
}

// startWithRoom makes the store take commits if it does not and there is room by now. Its error is not that there is none.
func (s *Store) startWithRoom() error {
	if s.noRoom.err() == nil {
		return nil
	}
	err := s.openForWriting()
	if err == nil {
		err = s.beginInTurn()
	}
	if err == nil || s.waitsForRoom(err) {
		return nil
	}
	return err
}

// beginInTurn is beginRun while nobody decides.
func (s *Store) beginInTurn() error {
	select {
	case s.writing <- struct{}{}:
		defer s.release()
	case <-s.closed:
		return nil
	}
	if err := s.beginRun(); err != nil {
		return err
	}
	_ = s.noRoom.set(nil)
	s.wake()
	s.options.Log.Info("there is room on the disk: changes are taken")
	return nil
}
