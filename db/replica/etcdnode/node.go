package etcdnode

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
)

const (
	heartbeat = 50  // ms
	election  = 500 // ms
	// quota is how large etcd's file may become. The log is trimmed, so it has some hundred megabytes at most.
	quota = 4 << 30
	// snapshotEvery and catchUp are how many changes etcd keeps in memory before a snapshot and after it, for nodes that lag. A change
	// may have 1 MiB, so they are fewer than by default.
	snapshotEvery, catchUp = 2000, 1000
	// defragmentAbove: at its start a node defragments its file if that frees so many MiB.
	defragmentAbove = 100
)

// Node is a running node.
type Node struct {
	options Options
	folder  *folder
	peers   *peers
	port    *port
	etcd    *embed.Etcd
	client  *etcd.Client
	failed  chan error
	ended   chan struct{} // closed when upkeep has ended
	stop    context.CancelFunc
	reason  ended // of etcd
}

// Start starts the node, and returns when it is a member of a cluster that has a leader. It waits for the other nodes until ctx ends.
func Start(ctx context.Context, o Options) (n *Node, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Folder, err = filepath.Abs(o.Folder); err != nil {
		return nil, err
	}
	if socket := filepath.Join(o.Folder, socketFile); len(socket) > maxSocketPath {
		return nil, fmt.Errorf("the path %s has more than %d bytes: choose a shorter --data", socket, maxSocketPath)
	}
	if err := followFiles(o); err != nil {
		return nil, err
	}
	n = &Node{options: o, failed: make(chan error, 1), ended: make(chan struct{})}
	if n.peers, err = newPeers(o); err != nil {
		return nil, err
	}
	if n.folder, err = openFolder(o); err != nil {
		return nil, err
	}
	if err = n.start(ctx); err != nil {
		n.release()
		return nil, err
	}
	background, stop := context.WithCancel(context.Background())
	n.stop = stop
	go n.upkeep(background)
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	config, err := n.prepare(ctx)
	if err != nil {
		return err
	}
	if err := n.folder.begin(n.options); err != nil {
		return err
	}
	if n.etcd, err = startEtcd(config); err != nil {
		if !n.folder.fresh {
			err = fmt.Errorf("%w. If its data is damaged: %s", err, replaceBy(n.options.Name))
		}
		return fmt.Errorf("start etcd: %w", err)
	}
	n.port.handle(etcdhttp.NewPeerHandler(n.etcd.GetLogger(), n.etcd.Server))
	if err := n.ready(ctx); err != nil {
		return err
	}
	if err := n.alone(ctx); err != nil {
		return err
	}
	n.client = v3client.New(n.etcd.Server)
	return n.settle(ctx)
}

// startEtcd starts etcd, which panics on some kinds of damage to its files.
func startEtcd(config *embed.Config) (e *embed.Etcd, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			e, err = nil, fmt.Errorf("%w: it panics: %v", ErrFatal, reason)
		}
	}()
	return embed.StartEtcd(config)
}

// ready waits until the node is a member of a cluster with a leader.
func (n *Node) ready(ctx context.Context) error {
	for waited := lookOut; ; waited += lookOut {
		select {
		case <-n.etcd.Server.ReadyNotify():
			return nil
		case err := <-n.etcd.Err():
			return n.explain(err)
		case <-n.etcd.Server.StopNotify():
			return n.explain(nil)
		case <-ctx.Done():
			return fmt.Errorf("etcd waits for a majority of %s: %w", joined(n.folder.id.Peers), context.Cause(ctx))
		case <-time.After(lookOut):
		}
		if err := n.givenUp(ctx); err != nil {
			return err
		}
		if waited%remind == 0 {
			n.options.Log.Warn("etcd waits for a majority of the nodes", "nodes", joined(n.folder.id.Peers))
		}
	}
}

// explain explains why etcd has ended by itself.
func (n *Node) explain(err error) error {
	reason := "without a reason"
	if text := n.reason.Load(); text != nil {
		reason = *text
	} else if err != nil {
		reason = err.Error()
	}
	if !strings.Contains(reason, "permanently removed") {
		return fmt.Errorf("etcd has ended: %s", reason)
	}
	return removed(n.options.Name, n.folder.path, n.folder.id.Address)
}

func removed(name, folder, address string) error {
	return fmt.Errorf("%w: node %s was removed from the cluster. To use it again, delete %s; on another node, type: locket cluster add %s=%s; then start this one with --join",
		ErrRefused, name, folder, name, address)
}

// prepare finds out who the members are, opens the port, and returns etcd's configuration.
func (n *Node) prepare(ctx context.Context) (config *embed.Config, err error) {
	o, id := n.options, &n.folder.id
	existing, forms := true, false
	switch {
	case id.Recovering:
		return nil, fmt.Errorf("%w: the recovery of node %s was interrupted: type locket cluster recover again", ErrRefused, o.Name)
	case !n.folder.fresh:
		if err := n.checkCluster(ctx); err != nil {
			return nil, err
		}
		n.warnOfChanges()
	case id.Recovers != 0: // it starts for the first time since
		id.Peers, existing = []Member{{o.Name, id.Address}}, false
	case o.Join != "":
		self, all, err := join(ctx, o, n.peers)
		if err != nil {
			return nil, err
		}
		id.Join, id.Address, id.Peers = o.Join, self.address(), all
	case len(o.Cluster) > 0:
		id.Cluster, id.Address, id.Peers = joined(o.Cluster), o.addressOf(o.Name), o.Cluster
		existing, forms = false, true
	default:
		return nil, fmt.Errorf("%w: %s is empty: give --cluster to begin a cluster, or --join to join one", ErrRefused, n.folder.path)
	}
	if err := o.checkSecure(id.Address); err != nil {
		return nil, err
	}
	if n.port, err = openPort(o, id.Address); err != nil {
		return nil, err
	}
	if forms {
		if err := n.form(ctx); err != nil {
			return nil, err
		}
	}
	return n.config(existing), nil
}

// warnOfChanges warns of settings that a node with data ignores.
func (n *Node) warnOfChanges() {
	o, id := n.options, n.folder.id
	if len(o.Cluster) > 0 && joined(o.Cluster) != id.Cluster {
		o.Log.Warn("--cluster has no effect: the node has been a member since it was first started. To change the members, use: locket cluster", "given", joined(o.Cluster), "members", joined(id.Peers))
	}
}

// checkCluster refuses the folder of another cluster than the other nodes'.
func (n *Node) checkCluster(ctx context.Context) error {
	id := n.folder.id
	if id.ClusterID == 0 {
		return nil
	}
	others := id.others(append(slices.Clone(id.Peers), n.options.Cluster...))
	if n.options.Join != "" {
		others = append(others, Member{Address: n.options.Join})
	}
	same, foreign, err := n.look(ctx, slices.DeleteFunc(others, func(m Member) bool { return m.Address == id.Address }))
	if err != nil || same || foreign == "" {
		return err
	}
	return fmt.Errorf("%w: %s is of another cluster than the node at %s. Start this node with its own folder. If that is lost: %s", ErrRefused, n.folder.path, foreign, replaceBy(id.Name))
}

func (n *Node) config(existing bool) *embed.Config {
	o, id := n.options, n.folder.id
	c := embed.NewConfig()
	socket := url.URL{Scheme: "unix", Path: n.folder.file(socketFile)}
	scheme := schemeOf(o)
	c.Name, c.Dir, c.InitialCluster = o.Name, n.folder.path, initial(scheme, id.Peers)
	switch { // the token makes the id of a new cluster
	case existing:
		c.ClusterState = embed.ClusterStateFlagExisting
	case id.Recovers != 0:
		c.InitialClusterToken = tokenOf(id.Recovers)
	case len(id.Peers) == 1: // there may have been another cluster of this node, as before a restore
		c.InitialClusterToken = rand.Text()
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	c.ListenPeerUrls = nil // see port
	c.AdvertisePeerUrls = []url.URL{{Scheme: scheme, Host: id.Address}}
	c.PeerTLSInfo = tlsOf(o)
	c.TickMs, c.ElectionMs = heartbeat, election
	c.QuotaBackendBytes, c.BootstrapDefragThresholdMegabytes = quota, defragmentAbove
	c.SnapshotCount, c.SnapshotCatchUpEntries = snapshotEvery, catchUp
	c.EnableGRPCGateway, c.AuthToken = false, ""
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(o, &n.reason))
	return c
}

// settle notes the ids of the node and of its cluster. It returns an error if the folder was rolled back.
func (n *Node) settle(ctx context.Context) error {
	s, id := n.etcd.Server, &n.folder.id
	id.ClusterID, id.MemberID = uint64(s.Cluster().ID()), uint64(s.MemberID())
	n.notePeers()
	if err := n.countRun(ctx); err != nil {
		return err
	}
	return n.folder.save()
}

// countRun notes the number of the run in the cluster. A higher one is there if the folder was rolled back since.
func (n *Node) countRun(ctx context.Context) error {
	key := fmt.Sprintf("%snode/%016x", n.options.Prefix, n.folder.id.MemberID)
	mine := fmt.Sprintf("%020d", n.folder.id.Run)
	response, err := n.client.Txn(ctx).If(etcd.Compare(etcd.Value(key), "<", mine)).Then(etcd.OpPut(key, mine)).Else(etcd.OpGet(key)).Commit()
	if err != nil || response.Succeeded {
		return err
	}
	if found := response.Responses[0].GetResponseRange().GetKvs(); len(found) > 0 {
		return fmt.Errorf("%w: %s was taken back to an older state: this is its run %d, and the cluster has seen run %s. What it has promised since is lost. %s",
			ErrRefused, n.folder.path, n.folder.id.Run, found[0].GetValue(), replaceBy(n.options.Name))
	}
	if _, err = n.client.Put(ctx, key, mine); err != nil { // there was none
		return err
	}
	return nil
}

// notePeers notes the addresses of all members. It reports whether they have changed.
func (n *Node) notePeers() bool {
	var all []Member
	for _, m := range n.etcd.Server.Cluster().Members() {
		all = append(all, Member{m.Name, addressOf(m.PeerURLs)})
	}
	changed := joined(n.folder.id.Peers) != joined(all)
	n.folder.id.Peers = all
	return changed
}

// Client makes requests of this node without a network. Its Watch is not used: see Watch.
func (n *Node) Client() *etcd.Client { return n.client }

// Watch makes watches of this node.
func (n *Node) Watch() pb.WatchClient {
	return adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(n.etcd.Server))
}

// Server is etcd's own server.
func (n *Node) Server() *etcdserver.EtcdServer { return n.etcd.Server }

// Address is the address that other nodes dial.
func (n *Node) Address() string { return n.folder.id.Address }

// Listen returns a listener for connections of other servers at the node's address: of TLS with a server name. It takes the place of the one
// before.
func (n *Node) Listen(name string) net.Listener { return n.port.Listen(name) }

// Failed gets an error if the node ends by itself: it was removed from the cluster.
func (n *Node) Failed() <-chan error { return n.failed }

// Close stops the node. A leader hands over first.
func (n *Node) Close() error {
	n.stop()
	<-n.ended
	n.reason.stopping.Store(true)
	n.release()
	return nil
}

// release ends what was started.
func (n *Node) release() {
	if n.etcd != nil {
		if n.etcd.Server != nil {
			n.etcd.Server.Stop() // before it waits for the clients
		}
		n.etcd.Close()
	}
	if n.port != nil {
		n.port.close()
	}
	n.peers.close()
	_ = n.folder.lock.Close()
}

// pause waits, and returns false when ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
