package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/snapshot"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Fill fills a folder with the data that from gives its sink. The folder must be Vacant. No server uses a partly filled
// one: it can only be filled again. Fill returns backup.ErrNotEmpty, and db.ErrInUse when a server uses the folder, or
// somebody else fills it. After any other error the folder is unchanged.
func Fill(path string, from func(backup.Sink) error) error {
	_, err := os.Stat(path)
	made := errors.Is(err, fs.ErrNotExist)
	if err := checkVacant(path); err != nil {
		return err
	}
	f, err := lockFolder(path)
	if err != nil {
		return err
	}
	defer f.close()
	if err := checkVacant(path); err != nil { // from now on nobody changes it
		return err
	}
	if err = f.fill(from); err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("fill %s: %w", path, err), f.empty(made))
}

// Refill is Fill for a folder of a server, whose data it deletes first. After an error it must be called again: until then no server uses the folder.
func Refill(path string, from func(backup.Sink) error) error {
	f, err := lockFolder(path)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.fill(from); err != nil {
		return fmt.Errorf("fill %s: %w", path, err)
	}
	return nil
}

func checkVacant(path string) error {
	vacant, err := Vacant(path)
	if err == nil && !vacant {
		err = fmt.Errorf("%s: %w", path, backup.ErrNotEmpty)
	}
	return err
}

// Vacant reports whether a folder holds nothing: it is not there, or empty, or was filled in part, or its first server has not served yet.
func Vacant(path string) (bool, error) {
	f := &folder{path: path}
	switch err := f.readNode(); {
	case err == nil:
		return !f.isUsed(), nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	switch err := f.checkStarted(); {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, ErrFolder):
		return false, nil
	default:
		return false, err
	}
}

// empty deletes all that is in the folder, and the folder itself if that was made.
func (f *folder) empty(made bool) error {
	if err := f.clear(); err != nil { // it stays one that was filled in part
		return err
	}
	for _, name := range []string{nodeName + newSuffix, nodeName} {
		if err := f.held.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if made {
		return os.Remove(f.path)
	}
	return nil
}

// fill fills the folder.
func (f *folder) fill(from func(backup.Sink) error) error {
	if err := f.restart(stateFilling); err != nil {
		return err
	}
	t := &filling{folder: f}
	if err := errors.Join(from(t), t.close()); err != nil {
		return err
	}
	if !t.ended {
		return errors.New("the contents to restore are incomplete")
	}
	return f.ready()
}

// filledIndex is the entry that the log of a folder that was filled follows: so the log tells when the snapshot is missing.
const filledIndex = 1

// fillPage is how many claims that have ended are written at once, and fillBytes how large these are, the last one apart.
const fillPage, fillBytes = 1000, 8 << 20

// filling is a Sink that makes a snapshot, and the history.
type filling struct {
	folder   *folder
	snapshot *snapshot.Writer
	history  *history.History
	ended    bool
	page     []history.Ended
	bytes    int // of the page
}

// Begin implements backup.Sink.
func (t *filling) Begin(h backup.Head) (err error) {
	snapshots, err := t.folder.hold(snapshotsName)
	if err != nil {
		return err
	}
	meta := snapshot.Meta{Log: t.folder.log, Index: filledIndex, History: filledIndex}
	if t.snapshot, err = snapshot.NewWriter(snapshots, meta, h.Lease); err != nil {
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
	t.page = append(t.page, history.Ended{Entry: filledIndex, Claim: c})
	if t.bytes += pendingBytes(c); len(t.page) < fillPage && t.bytes < fillBytes {
		return nil
	}
	return t.writePage()
}

func (t *filling) writePage() error {
	err := t.history.Write(t.page, filledIndex, nil)
	t.page, t.bytes = nil, 0
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
	held, err := t.folder.hold(logName)
	if err != nil {
		return err
	}
	log, err := filelog.Create(held, t.folder.log, filledIndex, filelog.Options{})
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
