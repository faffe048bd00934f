package etcdnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/disk"
)

// ErrRefused says that a node must not start in its folder, or that a change of the members would endanger the cluster. The error names
// the remedy.
var ErrRefused = errors.New("refused")

const (
	identityFile = "node.json"
	lockFile     = "lock"
	socketFile   = "client.sock"
	folderMode   = 0o700
	fileMode     = 0o600
)

// identity is the content of node.json.
type identity struct {
	Name    string `json:"name"`
	Address string `json:"address"` // that other nodes dial
	// Cluster is the list that the cluster was formed with, and Join the node that was asked: whatever this node began with.
	Cluster string `json:"cluster,omitempty"`
	Join    string `json:"join,omitempty"`
	// ClusterID and MemberID are etcd's. They are 0 until the node has been a member for the first time.
	ClusterID uint64 `json:"cluster_id,string"`
	MemberID  uint64 `json:"member_id,string"`
	// Run is the number of the run. The cluster knows it too, so a folder that was rolled back is recognised.
	Run uint64 `json:"run"`
	// Lock is the disk.Identity of the file lock, which differs in a copy of the folder.
	Lock string `json:"lock"`
	// Peers are the addresses of the nodes when last seen.
	Peers []Member `json:"peers,omitempty"`
	// Recovers is the id of the cluster that this node was recovered from, and Before has the nodes of that. Recovering says that
	// the recovery has not ended.
	Recovers   uint64   `json:"recovers,string,omitempty"`
	Before     []Member `json:"before,omitempty"`
	Recovering bool     `json:"recovering,omitempty"`
	// Prefix is the prefix of the keys of the log, and Cert, Key and CA are the paths of the files, for the commands on this machine.
	Prefix string `json:"prefix,omitempty"`
	Cert   string `json:"cert,omitempty"`
	Key    string `json:"key,omitempty"`
	CA     string `json:"ca,omitempty"`
}

// folder is the folder of a node, locked.
type folder struct {
	path string
	lock *os.File
	id   identity
	// fresh says that the folder has no data of etcd.
	fresh bool
}

// openFolder makes the folder, or checks that it belongs to this node.
func openFolder(o Options) (*folder, error) {
	if err := os.Mkdir(o.Folder, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f := &folder{path: o.Folder}
	var err error
	if f.lock, err = os.OpenFile(f.file(lockFile), os.O_RDWR|os.O_CREATE, fileMode); err != nil {
		return nil, err
	}
	if err := f.check(o); err != nil {
		_ = f.lock.Close()
		return nil, err
	}
	return f, nil
}

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// check locks the folder, reads node.json and refuses a folder that is not of this node.
func (f *folder) check(o Options) error {
	if err := syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s: %w", f.lock.Name(), db.ErrInUse)
	}
	logs, err := filepath.Glob(f.file("member/wal/*.wal"))
	if err != nil {
		return err
	}
	f.fresh = len(logs) == 0
	f.id, err = readIdentity(f.path)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing && f.fresh:
		return nil
	case missing:
		return fmt.Errorf("%w: %s is missing, so %s is not a folder that Locket made, or not all of it. %s", ErrRefused, f.file(identityFile), f.path, replaceBy(o.Name))
	case err != nil:
		return err
	case f.id.Name != o.Name:
		return fmt.Errorf("%w: %s is the folder of node %s, not of %s: start it with --node %s, or give another --data", ErrRefused, f.path, f.id.Name, o.Name, f.id.Name)
	case f.fresh && f.id.MemberID != 0:
		return fmt.Errorf("%w: etcd's files in %s have been deleted. %s", ErrRefused, f.path, replaceBy(o.Name))
	}
	is, err := disk.Identity(f.lock)
	if err != nil {
		return err
	}
	if is != f.id.Lock {
		return fmt.Errorf("%w: %s is a copy of the folder of node %s. Two nodes with the same votes could lose data. Use the original. If it is gone: %s", ErrRefused, f.path, o.Name, replaceBy(o.Name))
	}
	return nil
}

// replaceBy says how to replace a node by a new one.
func replaceBy(name string) string {
	return fmt.Sprintf("On another node type: locket cluster replace %s=HOST:PORT. Then start this node with an empty folder and --join", name)
}

func readIdentity(folder string) (id identity, err error) {
	file := filepath.Join(folder, identityFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return id, err
	}
	if err := json.Unmarshal(text, &id); err != nil {
		return id, fmt.Errorf("%w: %s is damaged: %w", ErrRefused, file, err)
	}
	return id, nil
}

// begin notes that a new run uses the folder.
func (f *folder) begin(o Options) (err error) {
	f.id.Name, f.id.Prefix, f.id.Cert, f.id.Key, f.id.CA = o.Name, o.Prefix, o.Cert, o.Key, o.CA
	f.id.Run++
	if f.id.Lock, err = disk.Identity(f.lock); err != nil {
		return err
	}
	return f.save()
}

// save replaces node.json.
func (f *folder) save() error {
	text, err := json.MarshalIndent(f.id, "", "  ")
	if err != nil {
		return err
	}
	files, err := disk.Hold(f.path)
	if err != nil {
		return err
	}
	return errors.Join(files.Write(identityFile, append(text, '\n')), files.Close())
}
