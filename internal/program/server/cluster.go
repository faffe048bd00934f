package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/etcdnode"
	"github.com/locket-service/locket/db/replica/peer"
	"github.com/locket-service/locket/internal/base/follow"
)

// etcdOptions say where the log of a cluster on another etcd is.
func (c Config) etcdOptions(log *slog.Logger) etcdlog.Options {
	return etcdlog.Options{
		Endpoints: c.Etcd, Prefix: c.EtcdPrefix, CA: c.EtcdCA, Cert: c.EtcdCert, Key: c.EtcdKey,
		User: c.EtcdUser, PasswordFile: c.EtcdPasswordFile, Log: log,
	}
}

// clusterOpener returns a function that tries to open the store of a server whose log is in etcd.
func clusterOpener(c Config, folder string, files *follow.Set, log *slog.Logger) (func(context.Context) (db.Store, error), error) {
	options := c.etcdOptions(log)
	if options.Files = files; c.node != nil {
		options.Local = c.node
	}
	open, err := etcdlog.Opener(options)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (db.Store, error) {
		return OpenCluster(ctx, folder, replica.Options{Log: log}, func() (*replica.Cluster, error) { return c.joinCluster(ctx, open, log) })
	}, nil
}

// OpenCluster opens the store of a server of a cluster, in a folder, with the log and the connections that join returns. A server that
// lacks records which are no longer in the log gets another server's snapshot, and db.ErrUnavailable: call OpenCluster again.
func OpenCluster(ctx context.Context, folder string, options replica.Options, join func() (*replica.Cluster, error)) (db.Store, error) {
	cluster, err := join()
	if err != nil {
		return nil, err
	}
	options.Cluster = cluster
	store, err := replica.OpenWith(folder, options)
	var lags *replica.LaggingError
	switch {
	case err == nil:
		return store, nil
	case !errors.As(err, &lags):
		return nil, err
	}
	if cluster, err = join(); err != nil {
		return nil, err
	}
	err = replica.CatchUp(ctx, folder, *cluster, lags, options.Log)
	cluster.Peers.Close()
	if err = errors.Join(err, cluster.Log.Close()); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: it continues with the snapshot of another server", db.ErrUnavailable)
}

// joinCluster returns the log of the cluster and the connections to its servers.
func (c Config) joinCluster(ctx context.Context, open func() (*etcdlog.Log, error), log *slog.Logger) (*replica.Cluster, error) {
	shared, err := open()
	if err != nil {
		return nil, err
	}
	peers, err := c.listenForPeers()
	if err == nil {
		err = checkEtcd(ctx, shared, log)
	}
	if err != nil {
		if peers != nil {
			peers.Close()
		}
		return nil, errors.Join(err, shared.Close())
	}
	return &replica.Cluster{Log: shared, Peers: peers}, nil
}

// checkEtcd reports what etcd says about itself.
func checkEtcd(ctx context.Context, shared *etcdlog.Log, log *slog.Logger) error {
	report, err := shared.Check(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	for _, m := range report.Members {
		if m.Err == nil {
			log.Info("the log of the cluster is in etcd", "endpoint", m.Endpoint, "version", m.Version, "bytes", m.Size, "quota", m.Quota, "leads", m.Leads)
		}
	}
	for _, warning := range report.Warnings {
		log.Warn(warning)
	}
	return nil
}

// listenForPeers listens for the other servers: at the address of the server's node if it has one.
func (c Config) listenForPeers() (*peer.Peer, error) {
	o, address := peer.Options{Advertise: c.PeerAdvertise}, c.peerAddress()
	if c.node != nil {
		o.Listener, o.Advertise = c.node.Listen(peer.ServerName), c.node.Address()
	}
	p, err := peer.Listen(address, o)
	if err != nil {
		return nil, fmt.Errorf("--peer-address: %w", err)
	}
	return p, nil
}

// peerAddress returns the address to listen at for the other servers.
func (c Config) peerAddress() string {
	if c.PeerAddress != "" {
		return c.PeerAddress
	}
	host, _, err := net.SplitHostPort(c.GRPCAddress)
	if err != nil || host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, "0")
}

func (c Config) checkCluster(k *check) {
	k.that(!c.hasCluster() || strings.HasPrefix(c.database(), engineEmbedded+":"), "--etcd and --node exclude --database: the server's own data is in --data")
	c.checkNode(k)
	if len(c.Etcd) == 0 {
		k.only("a server with --etcd", map[string]string{
			"--etcd-ca": c.EtcdCA, "--etcd-cert": c.EtcdCert, "--etcd-key": c.EtcdKey, "--etcd-user": c.EtcdUser, "--etcd-password-file": c.EtcdPasswordFile,
		})
		k.that(c.PeerAddress+c.PeerAdvertise == "", "--peer-address, --peer-advertise: only a server with --etcd takes them; one with --node has one address for all")
	} else {
		*k = append(*k, c.etcdOptions(nil).Check())
	}
}

// hasCluster reports whether the server is one of a cluster, whose log is in etcd.
func (c Config) hasCluster() bool { return len(c.Etcd) > 0 || c.Node != "" }

// checkNode checks the settings of the server's own node of etcd.
func (c Config) checkNode(k *check) {
	if c.Node == "" {
		k.that(len(c.Cluster) == 0 && c.Join+c.ClusterCert+c.ClusterKey+c.ClusterCA == "",
			"--cluster, --join, --cluster-cert, --cluster-key, --cluster-ca: only a server with --node takes them")
		return
	}
	k.that(len(c.Etcd) == 0, "--node and --etcd exclude each other: the log of a cluster is either in the servers' own nodes or in another etcd")
	options, err := c.nodeOptions()
	k.valid("--node, --cluster, --join", errors.Join(err, options.Check()))
}

func (c Config) nodeOptions() (o etcdnode.Options, err error) {
	_, folder, _ := strings.Cut(c.database(), ":")
	o = etcdnode.Options{
		Folder: NodeFolder(folder), Name: c.Node, Join: c.Join, Prefix: c.EtcdPrefix,
		Cert: c.ClusterCert, Key: c.ClusterKey, CA: c.ClusterCA,
	}
	if len(c.Cluster) > 0 {
		o.Cluster, err = etcdnode.ParseCluster(strings.Join(c.Cluster, ","))
	}
	return o, err
}

// NodeFolder returns the folder of a server's node of etcd, below the server's data.
func NodeFolder(data string) string { return filepath.Join(data, replica.NodeName) }

// startNode starts the server's own node of etcd. It waits for the others until ctx ends. An error that etcd cannot survive ends
// the process, after flush.
func startNode(ctx context.Context, c Config, files *follow.Set, log *slog.Logger, flush func()) (*etcdnode.Node, error) {
	o, err := c.nodeOptions()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Folder), 0o700); err != nil {
		return nil, err
	}
	o.Files, o.Log = files, log
	o.Exit = func(err error) {
		log.Error("the server ends", "error", err)
		flush()
		os.Exit(1)
	}
	node, err := etcdnode.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("--node %s: %w", c.Node, err)
	}
	return node, nil
}
