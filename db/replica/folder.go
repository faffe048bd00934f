package replica

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica/disk"
)

// The files and folders in a folder.
const (
	nodeName      = "node"      // the ids of the node and of its log, and the state of the folder
	runName       = "run"       // which run of a server uses the folder, see run
	logName       = "log"       // the log, see package wal
	snapshotsName = "snapshots" // see package snapshot
	historyName   = "history.db"
)

// ErrFolder is returned by Open for a folder that is not a server's, misses a file, or is a copy.
var ErrFolder = errors.New("the folder cannot be used")

// folder is the folder of one node. No other process uses it: the folder itself is locked, so deleting its files does not unlock it.
type folder struct {
	path string
	held *disk.Held
	// log and node are the ids of the log, and of the node in the cluster.
	log, node uint64
	state     string // as its file has it
	// fresh says that there is nothing in it yet.
	fresh bool
	// cluster says that its server is one of a cluster, and joins that it was not one of a cluster before.
	cluster, joins bool
	run            run
	next           run          // prepared, and not begun
	inner          []*disk.Held // folders in it
	// rolledBack is why the folder counts as rolled back to an older state, "" if it does not.
	rolledBack string
}

const folderMode, fileMode = 0o700, 0o600

// The states of a folder.
const (
	stateNew     = "new"     // nothing was acknowledged yet
	stateFilling = "filling" // Fill has not ended
	stateReady   = "ready"   // of a server by itself
	stateCluster = "cluster" // of a server of a cluster
)

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// openFolder makes this process the only one that uses a folder, and makes the folder if it is not there. copied says that a copy counts as
// the original, and cluster that the server is one of a cluster.
func openFolder(path string, copied, cluster bool) (*folder, error) {
	f, err := lockFolder(path)
	if err != nil {
		return nil, err
	}
	f.cluster = cluster
	if err := f.identify(copied); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// lockFolder makes and locks a folder. It does not look at its content.
func lockFolder(path string) (_ *folder, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f := &folder{path: path}
	if f.held, err = disk.Hold(path); err != nil {
		return nil, err
	}
	if err = lock(f.held.Self, syscall.LOCK_EX); err == nil {
		err = f.lockRun()
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// lock locks a file or a folder, as flock(2) does. It returns db.ErrInUse if another process has locked it.
func lock(file *os.File, how int) error {
	err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = db.ErrInUse
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", filepath.Clean(file.Name()), err)
	}
	return nil
}

// inUse reports whether a server uses a folder. The caller may have only the right to read it.
func inUse(path string) bool {
	for _, name := range []string{".", runName} {
		file, err := os.Open(filepath.Join(path, name))
		if err != nil {
			continue
		}
		err = lock(file, syscall.LOCK_SH)
		_ = file.Close() // nothing was written to it
		if errors.Is(err, db.ErrInUse) {
			return true
		}
	}
	return false
}

// identify reads the ids of the node, or makes them.
func (f *folder) identify(copied bool) error {
	err := f.readNode()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := f.checkStarted(); err != nil {
			return err
		}
		return f.restart(stateNew)
	case err != nil:
		return err
	case f.state == stateFilling:
		return fmt.Errorf("%s: %w", f.path, backup.ErrHalfRestored)
	case f.state == stateNew:
		return f.restart(stateNew)
	case f.state == stateCluster && !f.cluster && !copied:
		return fmt.Errorf("%w: %s is of a server of a cluster, which others have gone on without: give --etcd or --node, as before", ErrFolder, f.path)
	case copied:
		return nil
	}
	f.joins = f.cluster && f.state == stateReady
	if err = f.checkRun(); err == nil && f.joins && f.rolledBack != "" {
		err = fmt.Errorf("%w: %s was rolled back to an older state (%s): start its server once without --etcd", ErrFolder, f.path, f.rolledBack)
	}
	return err
}

// nodeText is the content of the node's file before its checksum.
const nodeText = "locket data 1\n%s\nlog %x\nnode %x\n"

// readNode reads the ids of the node, and the state of the folder. Its error is fs.ErrNotExist for a folder that was not begun.
func (f *folder) readNode() error {
	text, err := os.ReadFile(f.file(nodeName))
	if err != nil {
		return err
	}
	body, intact := summed(text)
	n, err := fmt.Sscanf(body, nodeText, &f.state, &f.log, &f.node)
	if known := []string{stateNew, stateFilling, stateReady, stateCluster}; !intact || n != 3 || err != nil || !slices.Contains(known, f.state) {
		return fmt.Errorf("%w: %s is damaged: bring it back from a backup", ErrFolder, f.file(nodeName))
	}
	return nil
}

// checkStarted returns an error for a folder that was not begun and is not empty.
func (f *folder) checkStarted() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == nodeName }) {
		return nil
	}
	for _, e := range entries {
		switch e.Name() {
		case nodeName + newSuffix: // left by a start that was interrupted
		case "lost+found": // of a file system that is mounted there
		case NodeName: // of this server's node of etcd
		case logName, snapshotsName, historyName, runName:
			return fmt.Errorf("%w: %s is missing, while %s is there: bring it back from a backup", ErrFolder, f.file(nodeName), e.Name())
		default:
			return fmt.Errorf("%w: %s is not of a Locket server: give it a folder of its own", ErrFolder, f.file(e.Name()))
		}
	}
	return nil
}

// restart makes the ids, and empty folders. The caller calls ready when everything in them is durable.
func (f *folder) restart(state string) error {
	var ids [16]byte
	_, _ = rand.Read(ids[:]) // it does not fail
	f.log, f.node = binary.LittleEndian.Uint64(ids[:])>>1|1, binary.LittleEndian.Uint64(ids[8:])>>1|1
	f.fresh = true
	if err := errors.Join(f.note(state), f.clear()); err != nil {
		return err
	}
	for _, name := range []string{logName, snapshotsName} {
		if err := f.held.Root.Mkdir(name, folderMode); err != nil {
			return err
		}
	}
	return nil
}

// clear deletes everything in the folder except the file of the node.
func (f *folder) clear() (err error) {
	for _, name := range []string{logName, snapshotsName, historyName, historyName + "-wal", historyName + "-shm", runName} {
		err = errors.Join(err, f.held.Root.RemoveAll(name))
	}
	return err
}

// note writes down the state of the folder.
func (f *folder) note(state string) error {
	f.state = state
	return f.held.Write(nodeName, []byte(withSum(fmt.Sprintf(nodeText, state, f.log, f.node))))
}

// ready notes that the folder has everything that it needs. By then the folder itself is durable too.
func (f *folder) ready() error {
	if err := f.beginRun(); err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(f.path))
	if err == nil {
		err = errors.Join(parent.Sync(), parent.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) { // a process that may not read it has not made the folder
		return err
	}
	return f.note(f.used())
}

// used is the state of a folder that a server has used.
func (f *folder) used() string {
	if f.cluster {
		return stateCluster
	}
	return stateReady
}

// isUsed reports whether a server has used the folder.
func (f *folder) isUsed() bool { return f.state == stateReady || f.state == stateCluster }

// NodeName is the name of the folder below a store's that has the data of this server's node of etcd.
const NodeName = "etcd"

const newSuffix = ".new"

var sumTable = crc32.MakeTable(crc32.Castagnoli)

// withSum returns a text with a last line that has its checksum.
func withSum(text string) string {
	return fmt.Sprintf("%ssum %08x\n", text, crc32.Checksum([]byte(text), sumTable))
}

// summed returns a text without its checksum, and whether that is right.
func summed(text []byte) (body string, intact bool) {
	at := bytes.LastIndex(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) + 1
	body = string(text[:at])
	return body, string(text) == withSum(body)
}

// hold opens a folder in this one, until this one is closed.
func (f *folder) hold(name string) (*disk.Held, error) {
	held, err := f.held.Hold(name)
	if err == nil {
		f.inner = append(f.inner, held)
	}
	return held, err
}

func (f *folder) close() {
	for _, held := range f.inner {
		_ = held.Close() // nothing is left to sync
	}
	for _, r := range []run{f.run, f.next} {
		if r.file != nil {
			_ = r.file.Close()
		}
	}
	if f.held != nil {
		_ = f.held.Close()
	}
}

// exposed returns a warning if others may read the folder, "" if not.
func (f *folder) exposed() string {
	info, err := f.held.Self.Stat()
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("%s has mode %#o: other users may look into the folder of the data; chmod 700 it", f.path, info.Mode().Perm())
}
