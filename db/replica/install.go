package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/db/replica/snapshot"
)

// A server of a cluster that lacks records which are no longer in the shared log gets another server's snapshot. The snapshot is
// received beside the folder's data, verified, and moved to the folder's own snapshots. When the store is opened, its log ends before the newest
// snapshot, and begins anew behind it; its history gets a gap, which Store.ReceiveHistory fills.

// receivedName is the folder with the snapshot that is being received, and nothing else.
const receivedName = "received"

// SendSnapshot answers the request of ReceiveSnapshot on another server. It calls send for each part of the newest
// snapshot. Commits do not wait for it. It returns db.ErrUnavailable if there is no snapshot that is new enough.
func (s *Store) SendSnapshot(_ context.Context, request []byte, send func(part []byte) error) error {
	err := snapshot.Send(s.snapshots, request, send)
	if errors.Is(err, snapshot.ErrNone) {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	return err
}

// ReceiveSnapshot gives the folder of a server of a cluster, which does not run, another server's snapshot. Its log must have an id. The
// snapshot must be of an entry after one: the last one that the folder's server has applied. ask sends a request to another server's
// SendSnapshot, and calls part for each part of the answer.
//
// After an error the data in the folder is unchanged. Call it again, with this server or another one: it continues behind the
// parts that it has received.
func ReceiveSnapshot(path string, log, after uint64, ask func(request []byte, part func([]byte) error) error) error {
	f, err := lockFolder(path)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.receive(log, after, ask); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

func (f *folder) receive(log, after uint64, ask func(request []byte, part func([]byte) error) error) error {
	err := f.readNode()
	if err == nil && (f.log != log || f.state != stateCluster) {
		err = fmt.Errorf("%w: it is not of a server of this cluster", ErrFolder)
	}
	if err != nil {
		return err
	}
	if err := f.held.Root.Mkdir(receivedName, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	received, err := f.hold(receivedName)
	if err != nil {
		return err
	}
	m, err := snapshot.Receive(received, after, ask)
	if err != nil {
		return err
	}
	if m.Log != log {
		return errors.Join(fmt.Errorf("%w: the snapshot that another server has sent is of another cluster", ErrFolder), received.Remove(snapshot.Name(m.Index)))
	}
	return f.takeSnapshot(snapshot.Name(m.Index))
}

// takeSnapshot moves the received snapshot to the others. They are deleted when the store is opened.
func (f *folder) takeSnapshot(name string) error {
	snapshots, err := f.hold(snapshotsName)
	if err != nil {
		return err
	}
	if err := f.held.Root.Rename(filepath.Join(receivedName, name), filepath.Join(snapshotsName, name)); err != nil {
		return err
	}
	if err := snapshots.Sync(); err != nil {
		return err
	}
	return f.held.Root.RemoveAll(receivedName)
}

// beginLog replaces a log by a new one, whose entries follow an entry.
func beginLog(d disk.Disk, id, entry uint64, o filelog.Options) (*filelog.Log, error) {
	names, err := d.List()
	for _, name := range names {
		err = errors.Join(err, d.Remove(name))
	}
	if err = errors.Join(err, d.Sync()); err != nil {
		return nil, err
	}
	return filelog.Create(d, id, entry, o)
}
