package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/snapshot"
)

// A server of a cluster that lacks records which are no longer in the shared log gets another server's snapshot. The snapshot is
// received beside the folder's data and verified. Then the file installName is written: from now on the snapshot takes the place of the
// data. A crash may interrupt that: the next start goes on. The history stays, and gets a gap, which Store.ReceiveHistory
// fills.

const (
	receivedName = "received" // the snapshot that is being received, and nothing else
	installName  = "install"  // that it takes the place of the data
)

// installText is the content of the file before its checksum.
const installText = "locket install 1\nlog %x\nsnapshot %d\n"

// SendSnapshot answers the request of ReceiveSnapshot on another server. It calls send for each part of the newest
// snapshot. Commits do not wait for it. It returns db.ErrUnavailable if there is no snapshot that is new enough.
func (s *Store) SendSnapshot(_ context.Context, request []byte, send func(part []byte) error) error {
	err := snapshot.Send(s.snapshots, request, send)
	if errors.Is(err, snapshot.ErrNone) {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	return err
}

// ReceiveSnapshot replaces the data in a folder without a running server by another server's snapshot. The folder must be
// Vacant, or of the log with an id. The snapshot must be of an entry after one: the last one that the folder's server has applied. ask sends a request to
// another server's SendSnapshot, and calls part for each part of the answer.
//
// After an error the data in the folder is unchanged. Call it again, with this server or another one: it continues behind the
// parts that it has received.
func ReceiveSnapshot(path string, log, after uint64, ask func(request []byte, part func([]byte) error) error) error {
	f, err := lockFolder(path)
	if err != nil {
		return err
	}
	defer f.close()
	f.cluster = true
	if err := f.receive(log, after, ask); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

func (f *folder) receive(log, after uint64, ask func(request []byte, part func([]byte) error) error) error {
	if installed, err := f.finishInstall(); err != nil || installed > after {
		return err
	}
	if _, err := f.download(log, after, ask); err != nil {
		return err
	}
	_, err := f.finishInstall()
	return err
}

// download receives a snapshot, and notes that it takes the place of the data.
func (f *folder) download(log, after uint64, ask func(request []byte, part func([]byte) error) error) (index uint64, err error) {
	if err := f.prepareReceive(log); err != nil {
		return 0, err
	}
	received, err := f.hold(receivedName)
	if err != nil {
		return 0, err
	}
	m, err := snapshot.Receive(received, after, ask)
	if err != nil {
		return 0, err
	}
	if m.Log != log {
		return 0, errors.Join(fmt.Errorf("%w: the snapshot that another server has sent is of another cluster", ErrFolder), received.Remove(snapshot.Name(m.Index)))
	}
	return m.Index, f.write(installName, fmt.Sprintf(installText, log, m.Index))
}

// prepareReceive makes the folder one of the log, and the folder for the snapshot in it.
func (f *folder) prepareReceive(log uint64) error {
	vacant, err := Vacant(f.path)
	if err != nil {
		return err
	}
	if vacant {
		err = f.restart(stateFilling)
		if f.log = log; err == nil {
			err = f.note(stateFilling)
		}
	} else if _, err = f.readNode(); err == nil && f.log != log {
		err = fmt.Errorf("%w: it is of another cluster", ErrFolder)
	}
	if err != nil {
		return err
	}
	if err := f.held.Root.Mkdir(receivedName, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.held.Sync()
}

// finishInstall has the received snapshot take the place of the data, if that has begun. It returns the index of the
// snapshot, 0 if there is none.
func (f *folder) finishInstall() (index uint64, err error) {
	log, index, err := f.readInstall()
	if err != nil || index == 0 {
		return 0, err
	}
	state, err := f.readNode()
	if err != nil {
		return 0, err
	}
	if f.log != log { // the folder was filled with something else
		return 0, f.endInstall()
	}
	for _, step := range f.installation(state, index) {
		if err := step(); err != nil {
			return 0, fmt.Errorf("install the snapshot of entry %d: %w", index, err)
		}
	}
	return index, nil
}

func (f *folder) readInstall() (log, index uint64, err error) {
	text, err := f.held.Root.ReadFile(installName)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	} else if err != nil {
		return 0, 0, err
	}
	body, intact := summed(text)
	if n, err := fmt.Sscanf(body, installText, &log, &index); !intact || n != 2 || err != nil {
		return 0, 0, fmt.Errorf("%w: %s is damaged: empty the folder, and the server joins again", ErrFolder, f.file(installName))
	}
	return log, index, nil
}

// installation returns the steps that install a snapshot. Each of them may be done twice.
func (f *folder) installation(state string, index uint64) []func() error {
	steps := []func() error{
		func() error { return f.takeSnapshot(index) },
		func() error { return f.beginLog(index) },
		func() error { return f.jumpHistory(index) },
	}
	if !isUsed(state) {
		steps = append(steps, f.ready)
	}
	return append(steps, f.removeGap, f.endInstall)
}

// removeGap deletes the file gapName: the gap covers its claims.
func (f *folder) removeGap() error {
	if err := f.held.Remove(gapName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// takeSnapshot moves the received snapshot to the others. They are deleted when the store is opened.
func (f *folder) takeSnapshot(index uint64) error {
	snapshots, err := f.hold(snapshotsName)
	if err != nil {
		return err
	}
	name := snapshot.Name(index)
	err = f.held.Root.Rename(filepath.Join(receivedName, name), filepath.Join(snapshotsName, name))
	if errors.Is(err, fs.ErrNotExist) { // it was moved before
		_, err = f.held.Root.Stat(filepath.Join(snapshotsName, name))
	}
	return errors.Join(err, snapshots.Sync())
}

// beginLog makes a new log, whose entries follow the snapshot.
func (f *folder) beginLog(index uint64) error {
	held, err := f.hold(logName)
	if err != nil {
		return err
	}
	names, err := held.List()
	for _, name := range names {
		err = errors.Join(err, held.Remove(name))
	}
	if err = errors.Join(err, held.Sync()); err != nil {
		return err
	}
	log, err := filelog.Create(held, f.log, index, filelog.Options{})
	if err != nil {
		return err
	}
	return log.Close()
}

// jumpHistory has the history go on after the snapshot, with a gap.
func (f *folder) jumpHistory(index uint64) error {
	_, err := f.held.Root.Stat(historyName)
	h, err := history.Open(f.file(historyName), f.log, errors.Is(err, fs.ErrNotExist))
	if err != nil {
		return err
	}
	if h.Entry() < index {
		err = h.JumpTo(index)
	}
	return errors.Join(err, h.Close())
}

// endInstall notes that nothing is left to do.
func (f *folder) endInstall() error {
	if err := f.held.Remove(installName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.held.Root.RemoveAll(receivedName); err != nil {
		return err
	}
	return f.held.Sync()
}
