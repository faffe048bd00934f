package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/etcdnode"
	"github.com/locket-service/locket/internal/base/follow"
)

// hasCluster reports whether the server is one of a cluster, whose log is in etcd.
func (c Config) hasCluster() bool { return len(c.Etcd) > 0 || c.Node != "" }

// wrongNode returns the errors in the settings of the server's own node of etcd.
func (c Config) wrongNode() (wrong []error) {
	if c.Node == "" {
		if len(c.Cluster) > 0 || c.Join+c.ClusterCert+c.ClusterKey+c.ClusterCA != "" {
			wrong = append(wrong, errors.New("--cluster, --join, --cluster-cert, --cluster-key, --cluster-ca: only a server with --node takes them"))
		}
		return wrong
	}
	if len(c.Etcd) > 0 {
		wrong = append(wrong, errors.New("--node and --etcd exclude each other: the log of a cluster is either in the servers' own nodes or in another etcd"))
	}
	options, err := c.nodeOptions()
	if err = errors.Join(err, options.Check()); err != nil {
		wrong = append(wrong, fmt.Errorf("--node, --cluster, --join: %w", err))
	}
	return wrong
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

// untilEnded returns a runner that ends with an error when the node has ended by itself.
func untilEnded(node *etcdnode.Node) ifrit.Runner {
	return ifrit.RunFunc(func(signals <-chan os.Signal, ready chan<- struct{}) error {
		close(ready)
		select {
		case <-signals:
			return nil
		case err := <-node.Failed():
			return err
		}
	})
}
