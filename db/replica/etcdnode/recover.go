package etcdnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// A node whose cluster has lost its majority for ever becomes a cluster of its own in these steps:
//
//   - Recover locks the folder, and Ask asks the other nodes.
//   - Salvage starts etcd on a copy of the node's data, as a cluster of one. All that the node has received counts as
//     committed, so that nothing that a client was told is dropped.
//   - Begin notes that the recovery has begun, once all that was salvaged is safe elsewhere. From now on no server starts in the folder, until Finish.
//   - The next Start begins a new etcd cluster with this node alone. Its id follows from the id of the old cluster and the
//     node's address, so nodes of the old cluster recognise it, and end: see givenUp.

const (
	salvageFolder = "salvage"
	memberFolder  = "member"
	// lookOut is the time between two looks for a recovered node.
	lookOut = 5 * time.Second
)

// Recovery is the recovery of the node in a folder. The folder is locked until Close.
type Recovery struct {
	node *Node
}

// Recover begins the recovery of a node. o has the Log and Exit of etcd.
func Recover(folder string, o Options) (*Recovery, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	id, err := readIdentity(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no folder of a node: use this command on the machine of the node that is left, with its --data", folder)
	} else if err != nil {
		return nil, err
	}
	o.Folder, o.Name, o.Prefix, o.Cert, o.Key, o.CA = folder, id.Name, id.Prefix, id.Cert, id.Key, id.CA
	n := &Node{options: o}
	if n.peers, err = newPeers(o); err != nil {
		return nil, err
	}
	if n.folder, err = openFolder(o); err != nil {
		return nil, err
	}
	if r := (&Recovery{n}); r.Started() || !n.folder.fresh {
		return r, nil
	}
	n.release()
	return nil, fmt.Errorf("%w: %s has no data of etcd", ErrRefused, folder)
}

// Close unlocks the folder.
func (r *Recovery) Close() { r.node.release() }

// Node is the node.
func (r *Recovery) Node() Member { return Member{r.node.options.Name, r.node.folder.id.Address} }

// Prefix is the prefix of the keys of the log.
func (r *Recovery) Prefix() string { return r.node.options.Prefix }

// Started reports whether Begin was called, in this process or an earlier one.
func (r *Recovery) Started() bool { return r.node.folder.id.Recovering }

// Ask returns an error unless all other nodes are named as lost, and none of them answers.
func (r *Recovery) Ask(ctx context.Context, lost []string) error {
	id := r.node.folder.id
	cluster, others := id.ClusterID, id.others(id.Peers)
	if id.Recovering {
		cluster, others = id.Recovers, id.others(id.Before)
	}
	if len(others) == 0 {
		return fmt.Errorf("%w: node %s is the only node of its cluster: start its server", ErrRefused, id.Name)
	}
	if alive := r.node.alive(ctx, others, cluster); len(alive) > 0 {
		return fmt.Errorf("%w: of the cluster, %s answers. If a majority is left, start this server as usual: nothing is lost then. If not, choose one node, stop the servers of all nodes, and recover the chosen one",
			ErrRefused, joined(alive))
	}
	var names []string
	for _, m := range others {
		names = append(names, cmp.Or(m.Name, m.Address)) // a node that was never started has no name
	}
	slices.Sort(names)
	if given := slices.Sorted(slices.Values(lost)); !slices.Equal(names, slices.Compact(given)) {
		return fmt.Errorf("%w: the other nodes are %s. A recovery gives them up for ever, with every change that they have and node %s has not. If a majority of the nodes can come back, start them instead. If not, type: --lost %s",
			ErrRefused, joined(others), id.Name, strings.Join(names, ","))
	}
	return nil
}

// others are the members except this one.
func (id identity) others(all []Member) []Member {
	return slices.DeleteFunc(slices.Clone(all), func(m Member) bool { return m.Name == id.Name })
}

// alive returns the nodes that answer as nodes of a cluster.
func (n *Node) alive(ctx context.Context, nodes []Member, cluster uint64) (alive []Member) {
	for i, id := range n.clusters(ctx, nodes) {
		if id == cluster {
			alive = append(alive, nodes[i])
		}
	}
	return alive
}

// clusters returns the ids of the clusters of some nodes, 0 for a node that does not answer.
func (n *Node) clusters(ctx context.Context, nodes []Member) []uint64 {
	ids := make([]uint64, len(nodes))
	var asked sync.WaitGroup
	for i, m := range nodes {
		asked.Go(func() { _, ids[i], _ = n.peers.members(ctx, m.Address) })
	}
	asked.Wait()
	return ids
}

// Salvage starts etcd on a copy of the node's data. Its Client and Watch have all that the node has received.
func (r *Recovery) Salvage(ctx context.Context) (*Salvaged, error) {
	folder := r.node.folder.file(salvageFolder)
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	sockets, err := os.MkdirTemp("", "locket-") // a path that is short enough for a socket
	if err != nil {
		return nil, err
	}
	s := &Salvaged{&Node{options: r.node.options, folder: r.node.folder, peers: r.node.peers}, []string{folder, sockets}}
	if err := s.start(ctx, folder, sockets); err != nil {
		return nil, errors.Join(fmt.Errorf("read etcd's data: %w", err), s.Close())
	}
	return s, nil
}

// Salvaged is etcd on a copy of the data of a node.
type Salvaged struct {
	*Node
	folders []string // to be removed
}

func (s *Salvaged) start(ctx context.Context, folder, sockets string) (err error) {
	members := filepath.Join(folder, memberFolder)
	if err := os.CopyFS(members, os.DirFS(s.folder.file(memberFolder))); err != nil {
		return err
	}
	if err := commitAll(filepath.Join(members, "wal")); err != nil {
		return err
	}
	c := s.config(true)
	socket := url.URL{Scheme: "unix", Path: filepath.Join(sockets, socketFile)}
	c.Dir, c.ForceNewCluster = folder, true
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	if s.etcd, err = startEtcd(c); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.client = v3client.New(s.etcd.Server)
	return nil
}

// commitAll notes in a write-ahead log that all its entries are committed. A follower hears of that after the entry itself, and may not
// have written it down.
func commitAll(folder string) error {
	silent := zap.NewNop()
	snapshots, err := wal.ValidSnapshotEntries(silent, folder)
	if err != nil {
		return err
	}
	last := new(walpb.Snapshot)
	if len(snapshots) > 0 {
		last = snapshots[len(snapshots)-1]
	}
	for repaired := false; ; repaired = true {
		w, err := wal.Open(silent, folder, last)
		if err != nil {
			return err
		}
		_, state, entries, err := w.ReadAll()
		if err == nil && len(entries) > 0 && state.GetCommit() < entries[len(entries)-1].GetIndex() {
			state.Commit = new(entries[len(entries)-1].GetIndex())
			err = w.Save(state, nil)
		}
		err = errors.Join(err, w.Close())
		if repaired || !errors.Is(err, io.ErrUnexpectedEOF) || !wal.Repair(silent, folder) { // a write that a crash has interrupted
			return err
		}
	}
}

// Close ends etcd, and removes the copy.
func (s *Salvaged) Close() (err error) {
	s.reason.stopping.Store(true)
	if s.etcd != nil {
		s.etcd.Server.Stop()
		s.etcd.Close()
	}
	for _, folder := range s.folders {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	return err
}

// Begin notes that the recovery has begun, and removes etcd's data. After a crash it may be called again.
func (r *Recovery) Begin() error {
	f := r.node.folder
	if id := &f.id; !id.Recovering {
		id.Recovering, id.Recovers, id.Before = true, id.ClusterID, id.Peers
		id.ClusterID, id.MemberID, id.Run, id.Peers = 0, 0, 0, []Member{r.Node()}
		if err := f.save(); err != nil {
			return err
		}
	}
	return os.RemoveAll(f.file(memberFolder))
}

// Finish notes that the node may start, as a cluster of its own.
func (r *Recovery) Finish() error {
	r.node.folder.id.Recovering = false
	return r.node.folder.save()
}

// tokenOf is the token of the cluster that a recovery makes of another one. With the address of its node it gives the id of
// the cluster.
func tokenOf(recovered uint64) string { return fmt.Sprintf("recovered %016x", recovered) }

// recoveredAt is the id of the cluster that a recovery of a cluster begins at a node with a URL.
func recoveredAt(cluster uint64, at string) uint64 {
	urls, err := types.NewURLs([]string{at})
	if err != nil {
		return 0
	}
	made, err := membership.NewClusterFromURLsMap(zap.NewNop(), tokenOf(cluster), types.URLsMap{"recovered": urls})
	if err != nil {
		return 0
	}
	return uint64(made.ID())
}

// look asks other nodes which cluster they are of. It reports whether one of them is of this node's, and returns the address of
// a node of a foreign cluster, "" for none. It returns an error if another node was recovered without this one.
func (n *Node) look(ctx context.Context, others []Member) (same bool, foreign string, err error) {
	id := n.folder.id
	for i, cluster := range n.clusters(ctx, others) {
		switch m := others[i]; cluster {
		case 0, id.Recovers:
		case id.ClusterID:
			same = true
		case recoveredAt(id.ClusterID, n.peers.url(m.Address)):
			return false, "", fmt.Errorf("%w: the cluster was recovered with the node at %s alone, by locket cluster recover, so node %s and its data are of no use any more. "+
				"On the machine of that node, type: locket cluster add %s=%s. Then start this one with an empty folder and --join %s", ErrRefused, m.Address, id.Name, id.Name, id.Address, m.Address)
		default:
			foreign = m.Address
		}
	}
	return same, foreign, nil
}

// givenUp returns an error if another node was recovered without this one.
func (n *Node) givenUp(ctx context.Context) error {
	if n.folder.id.ClusterID == 0 {
		return nil
	}
	_, _, err := n.look(ctx, n.folder.id.others(n.folder.id.Peers))
	return err
}

// alone waits until no node of the cluster that this node was recovered from answers any more: they end when they notice this one.
func (n *Node) alone(ctx context.Context) error {
	id := n.folder.id
	for warned := (time.Time{}); id.Recovers != 0; {
		old := n.alive(ctx, id.others(id.Before), id.Recovers)
		if len(old) == 0 {
			return nil
		}
		if time.Since(warned) > remind {
			warned = time.Now()
			n.options.Log.Warn("nodes of the cluster before the recovery run: this server waits until they have ended", "nodes", joined(old))
		}
		if !pause(ctx, ask) {
			return fmt.Errorf("waiting for the end of %s: %w", joined(old), context.Cause(ctx))
		}
	}
	return nil
}
