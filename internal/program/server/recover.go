package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/etcdnode"
)

// recoveryBackup is the name of the backup that a recovery makes in the folder of the data.
const recoveryBackup = "before-recovery.backup"

// recoveryTimeout is how long etcd may take to read its data.
const recoveryTimeout = 5 * time.Minute

// Recovered describes a node that has become a cluster of its own.
type Recovered struct {
	etcdnode.Member
	// LastChange is the time of the last change that the node has received. It is zero if an interrupted recovery was continued.
	LastChange time.Time
	// Quarantine is for how long nothing is granted after the start of the server.
	Quarantine time.Duration
	// Backup is the file with the data before the recovery.
	Backup string
}

// RecoverNode makes the node whose data is in a folder a cluster of its own. The server must not run, and all other nodes must be
// named as lost. What the node has received is backed up first, and then restored into the folder. After a crash in between, the next call continues.
func RecoverNode(ctx context.Context, data string, lost []string, o RestoreOptions) (recovered Recovered, err error) {
	r, err := etcdnode.Recover(NodeFolder(data), etcdnode.Options{Log: quiet, Exit: func(err error) { panic(err) }})
	if err != nil {
		return recovered, err
	}
	defer r.Close()
	if err := r.Ask(ctx, lost); err != nil {
		return recovered, err
	}
	recovered.Member, recovered.Backup = r.Node(), filepath.Join(data, recoveryBackup)
	if !r.Started() {
		if recovered.LastChange, err = salvage(ctx, r, data); err != nil {
			return recovered, err
		}
		if _, err := Backup(ctx, Config{Data: data}, recovered.Backup); err != nil {
			return recovered, err
		}
	}
	from, err := restoring(ctx, recovered.Backup, o, &recovered.Quarantine)
	if err != nil {
		return recovered, err
	}
	if err = r.Begin(); err == nil {
		err = replica.Refill(data, from)
	}
	if err == nil {
		err = r.Finish()
	}
	if err != nil {
		return recovered, fmt.Errorf("%w. No server starts in %s until this command has succeeded", err, data)
	}
	return recovered, nil
}

// salvage brings the folder of a server up to date with everything that its node of etcd has received. It returns the time of
// the last change.
func salvage(ctx context.Context, r *etcdnode.Recovery, data string) (last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, recoveryTimeout)
	defer cancel()
	node, err := r.Salvage(ctx)
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	shared, err := etcdlog.Open(etcdlog.Options{Local: node, Prefix: r.Prefix(), Log: quiet})
	if err != nil {
		return last, err
	}
	store, err := replica.OpenWith(data, replica.Options{Log: quiet, Cluster: &replica.Cluster{Log: shared, Peers: noPeers{}}})
	if lags, is := errors.AsType[*replica.LaggingError](err); is {
		return last, fmt.Errorf("this node had not caught up: it has no change after entry %d, and needs the snapshot of another server. "+
			"Recover another node. If there is none, back up %s and restore the backup into an empty folder", lags.After, data)
	} else if err != nil {
		return last, err
	}
	return store.LastChange(), store.Close()
}

// noPeers are the other servers while there are none.
type noPeers struct{}

var errNoPeers = fmt.Errorf("%w: there are no other servers", db.ErrUnavailable)

// Serve implements replica.Peers.
func (noPeers) Serve(replica.Handler) {}

// Close implements replica.Peers.
func (noPeers) Close() {}

// About implements replica.Peers.
func (noPeers) About() []byte { return []byte("recovery") }

// Snapshot implements replica.Peers.
func (noPeers) Snapshot(context.Context, []byte, []byte, func([]byte) error) error { return errNoPeers }

// History implements replica.Peers.
func (noPeers) History(context.Context, []byte, []byte, func([]byte) error) error { return errNoPeers }

// CarryOut implements replica.Peers.
func (noPeers) CarryOut(context.Context, []byte, []byte) ([]byte, error) { return nil, errNoPeers }
