package raft

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/raft/disk"
	"github.com/locket-service/locket/db/raft/history"
	"github.com/locket-service/locket/db/raft/record"
	"github.com/locket-service/locket/db/raft/snapshot"
	"github.com/locket-service/locket/db/raft/wal"
	"github.com/locket-service/locket/internal/claim"
)

// fillSuffix is what the name of a folder ends with while it is filled.
const fillSuffix = ".new"

// Fill makes a folder that holds what from gives its sink. The folder must be empty, or not be there. It is filled beside its place, and renamed when all
// of it is durable: whatever happens, it is there as a whole or not at all. It returns backup.ErrNotEmpty, and db.ErrInUse when somebody else
// fills it.
func Fill(path string, from func(backup.Sink) error) (err error) {
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	if err := empty(path); err != nil {
		return err
	}
	f, err := openFolder(path + fillSuffix)
	if err != nil {
		return err
	}
	defer f.close()
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("fill %s: %w", path, err), os.RemoveAll(f.path))
		}
	}()
	if !f.fresh { // one that was interrupted just before its end
		if err := f.restart(); err != nil {
			return err
		}
	}
	t := &filling{folder: f}
	if err := errors.Join(from(t), t.close()); err != nil {
		return err
	}
	if !t.ended {
		return errors.New("what it is to be filled with has no end")
	}
	if err := f.ready(); err != nil {
		return err
	}
	if err := syscall.Rename(f.path, path); err != nil { // os.Rename takes the place of no folder, also of no empty one
		return err
	}
	return disk.Folder(filepath.Dir(path)).Sync()
}

// empty returns an error for a path at which there is something.
func empty(path string) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s: %w", path, backup.ErrNotEmpty)
	}
	return nil
}

// fillPage is how many claims that have ended are written at once.
const fillPage = 1000

// filling is a Sink that makes a snapshot, and the history.
type filling struct {
	folder   *folder
	snapshot *snapshot.Writer
	history  *history.History
	ended    bool
	page     []history.Ended
}

// Begin implements backup.Sink.
func (t *filling) Begin(h backup.Head) (err error) {
	meta := snapshot.Meta{Log: t.folder.log, Index: firstIndex, Term: firstTerm}
	if t.snapshot, err = snapshot.NewWriter(t.folder.disk(snapshotsName), meta, h.Lease); err != nil {
		return err
	}
	t.history, err = history.Open(t.folder.file(historyName), t.folder.log, true)
	return err
}

// Claim implements backup.Sink.
func (t *filling) Claim(c *claim.Claim) error { return t.snapshot.Claim(c) }

// Session implements backup.Sink.
func (t *filling) Session(s *claim.Session) error { return t.snapshot.Session(s) }

// Server implements backup.Sink.
func (t *filling) Server(s backup.Server) error {
	return t.snapshot.Server(record.Server{Name: s.Name, Seen: s.Seen})
}

// Row implements backup.Sink.
func (t *filling) Row(r backup.Row) error {
	return t.snapshot.Row(record.Row{Name: r.Resource, Version: r.Version})
}

// Ended implements backup.Sink.
func (t *filling) Ended(c *claim.Claim) error {
	t.page = append(t.page, history.Ended{Entry: firstIndex, Claim: c})
	if len(t.page) < fillPage {
		return nil
	}
	return t.writePage()
}

func (t *filling) writePage() error {
	err := t.history.Write(t.page, firstIndex, nil)
	t.page = nil
	return err
}

// End implements backup.Sink.
func (t *filling) End(h backup.Head) error {
	if err := t.writePage(); err != nil {
		return err
	}
	if err := t.snapshot.End(h.Floor, h.Quarantine); err != nil {
		return err
	}
	t.snapshot = nil
	log, err := wal.Create(t.folder.disk(logName), t.folder.log, wal.HardState{Term: firstTerm, Commit: firstIndex}, firstIndex, firstTerm, wal.Options{})
	if err != nil {
		return err
	}
	t.ended = true
	return log.Close()
}

func (t *filling) close() error {
	var errs []error
	if t.snapshot != nil {
		errs = append(errs, t.snapshot.Close())
	}
	if t.history != nil {
		errs = append(errs, t.history.Close())
	}
	return errors.Join(errs...)
}
