package raft

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/raft/disk"
)

// What a folder has.
const (
	lockName      = "lock"      // locked by the process that uses the folder
	nodeName      = "node"      // who the node is
	placeName     = "place"     // which file this one is: a copy is another
	runsName      = "runs"      // how often the node has begun to send batches to the leader; missing for never
	lackName      = "lack"      // what the history may lack; missing for nothing
	logName       = "log"       // the log, see package wal
	snapshotsName = "snapshots" // see package snapshot
	historyName   = "history.db"
)

var (
	// ErrFolder is returned by Open for a folder that is not one of a server, lacks a file, or was copied.
	ErrFolder = errors.New("the folder cannot be used")
	// nodeHead is how the file of the node begins. What follows are a line with the state of the folder, and the ids of
	// the log and of the node.
	nodeHead = "locket raft 1\n"
)

// folder is the folder of one node, which no other process uses.
type folder struct {
	path string
	lock *os.File
	// log is the id of the log, and node that of the node in the cluster.
	log, node uint64
	// fresh says that there is nothing in it yet.
	fresh bool
}

const folderMode, fileMode = 0o700, 0o600

// The states of a folder.
const (
	stateNew     = "new"     // nothing was acknowledged yet
	stateFilling = "filling" // Fill has not ended
	stateReady   = "ready"
)

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// disk returns a folder below it.
func (f *folder) disk(name string) disk.Folder { return disk.Folder(f.file(name)) }

// openFolder makes this process the only one that uses a folder, and makes the folder if it is not there.
func openFolder(path string) (*folder, error) {
	f, err := lockFolder(path)
	if err != nil {
		return nil, err
	}
	if err := f.identify(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// lockFolder is openFolder without a look at what is in the folder. In a folder of somebody else it leaves nothing.
func lockFolder(path string) (_ *folder, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f := &folder{path: path}
	if err := f.checkBegun(); err != nil {
		return nil, err
	}
	if err := f.takeLock(os.O_RDWR | os.O_CREATE); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// takeLock opens the file of the lock with a flag of os.OpenFile, and locks the folder.
func (f *folder) takeLock(flag int) (err error) {
	if f.lock, err = os.OpenFile(f.file(lockName), flag, fileMode); err != nil {
		return err
	}
	if err = syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = db.ErrInUse
		}
		return fmt.Errorf("lock %s: %w", f.file(lockName), err)
	}
	return nil
}

// identify finds out who the node is, or makes it.
func (f *folder) identify() error {
	state, err := f.who()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := f.checkBegun(); err != nil {
			return err
		}
		return f.restart(stateNew)
	case err != nil:
		return err
	case state == stateFilling:
		return fmt.Errorf("%s: %w", f.path, backup.ErrHalfRestored)
	case state == stateNew:
		return f.restart(stateNew)
	}
	return f.checkPlace()
}

// who reads who the node is, and the state of the folder. Its error is fs.ErrNotExist for a folder that was not begun.
func (f *folder) who() (state string, err error) {
	text, err := os.ReadFile(f.file(nodeName))
	if err != nil {
		return "", err
	}
	rest, is := bytes.CutPrefix(text, []byte(nodeHead))
	n, err := fmt.Fscanf(bytes.NewReader(rest), "%s\nlog %x\nnode %x\n", &state, &f.log, &f.node)
	if known := []string{stateNew, stateFilling, stateReady}; !is || n != 3 || err != nil || !slices.Contains(known, state) {
		return "", fmt.Errorf("%w: %s does not say what it should: bring it back from a backup", ErrFolder, f.file(nodeName))
	}
	return state, nil
}

// checkBegun returns an error for a folder that was not begun, and in which there is something.
func (f *folder) checkBegun() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == nodeName }) {
		return nil
	}
	for _, e := range entries {
		switch e.Name() {
		case lockName, nodeName + ".new": // the second is left of a start that was interrupted
		case "lost+found": // of a file system that is mounted there
		case logName, snapshotsName, historyName, placeName, runsName, lackName:
			return fmt.Errorf("%w: %s is missing, while %s is there: bring it back from a backup", ErrFolder, f.file(nodeName), e.Name())
		default:
			return fmt.Errorf("%w: %s is not of a Locket server: give it a folder of its own", ErrFolder, f.file(e.Name()))
		}
	}
	return nil
}

// restart makes the ids, and empty folders. Its caller is to call ready when what it puts there is durable.
func (f *folder) restart(state string) error {
	var ids [16]byte
	_, _ = rand.Read(ids[:]) // it does not fail
	f.log, f.node = binary.LittleEndian.Uint64(ids[:])>>1|1, binary.LittleEndian.Uint64(ids[8:])>>1|1
	f.fresh = true
	if err := errors.Join(f.note(state), f.clear()); err != nil {
		return err
	}
	for _, name := range []string{logName, snapshotsName} {
		if err := os.Mkdir(f.file(name), folderMode); err != nil {
			return err
		}
	}
	return nil
}

// clear deletes what is in the folder, but for who the node is.
func (f *folder) clear() (err error) {
	for _, name := range []string{logName, snapshotsName, historyName, historyName + "-wal", historyName + "-shm", placeName, runsName, lackName} {
		err = errors.Join(err, os.RemoveAll(f.file(name)))
	}
	return err
}

// note writes down the state of the folder.
func (f *folder) note(state string) error {
	return f.write(nodeName, fmt.Sprintf("%s%s\nlog %x\nnode %x\n", nodeHead, state, f.log, f.node))
}

// nextRun returns the number of this run of the node, which is higher than those of the runs before, also after a crash.
func (f *folder) nextRun() (run uint64, err error) {
	text, err := os.ReadFile(f.file(runsName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, err
	default:
		if run, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return 0, fmt.Errorf("%w: %s does not say a number: bring it back from a backup", ErrFolder, f.file(runsName))
		}
	}
	run++
	return run, f.write(runsName, fmt.Sprintf("%d\n", run))
}

// ready says that all is there that the folder needs. By then the folder itself is durable too.
func (f *folder) ready() error {
	if err := f.notePlace(); err != nil {
		return err
	}
	if err := disk.Folder(filepath.Dir(f.path)).Sync(); err != nil && !errors.Is(err, fs.ErrPermission) { // who may not read it has not made the folder
		return err
	}
	return f.note(stateReady)
}

// write writes a file as a whole, durably.
func (f *folder) write(name, text string) error {
	d := disk.Folder(f.path)
	file, err := d.Create(name + ".new")
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte(text), 0)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := d.Rename(name+".new", name); err != nil {
		return err
	}
	return d.Sync()
}

// notePlace writes down which file the one of the place is.
func (f *folder) notePlace() error {
	file, err := os.OpenFile(f.file(placeName), os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		_, err = fmt.Fprintf(file, "%d\n", inode(info))
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close(), disk.Folder(f.path).Sync())
}

// checkPlace looks whether the folder was copied: what a copy does not have may have been acknowledged since. Who wants
// it all the same deletes the file of the place.
func (f *folder) checkPlace() error {
	text, err := os.ReadFile(f.file(placeName))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 { // it was to be written when the disk was full, or the power went
		return f.notePlace()
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(f.file(placeName))
	if err != nil {
		return err
	}
	if string(text) != fmt.Sprintf("%d\n", inode(info)) {
		return fmt.Errorf("%w: %s is a copy. If the original has served clients since it was copied, they would lose locks: use that one. "+
			"If this is all there is, or it was moved while no server used it, delete %s", ErrFolder, f.path, f.file(placeName))
	}
	return nil
}

func inode(info fs.FileInfo) uint64 {
	if stat, is := info.Sys().(*syscall.Stat_t); is {
		return stat.Ino
	}
	return 0
}

// stays returns an error when the folder is no longer at its path: what is written is lost for the next server there.
func (f *folder) stays() error {
	locked, err := f.lock.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(f.file(lockName)); err != nil || !os.SameFile(locked, now) {
		return fmt.Errorf("%s was moved, deleted or replaced while the server used it; put it back", f.path)
	}
	return nil
}

func (f *folder) close() {
	if f.lock != nil {
		_ = f.lock.Close() // nothing was written to it
	}
}
