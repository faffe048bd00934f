package server

import (
	"context"
	"errors"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/etcdnode"
)

// Formats are the formats of the log of a cluster.
type Formats = replica.Formats

const (
	// formatTimeout is how long reading the formats may take, and finalizeTimeout how long it may take until a server announces a new one.
	formatTimeout   = 3 * time.Second
	finalizeTimeout = 3 * db.AnnounceInterval
)

// ReadFormats reads the formats of the log of a cluster, by way of a node on this machine, or if node is nil in the etcd of the configuration.
func (c Config) ReadFormats(ctx context.Context, node *etcdnode.Manager) (Formats, error) {
	return c.withLog(node, func(log *etcdlog.Log) (Formats, error) { return readFormats(ctx, log) })
}

// Finalize has the servers use the newest format that all of them know. See ReadFormats for node.
func (c Config) Finalize(ctx context.Context, node *etcdnode.Manager) (Formats, error) {
	return c.withLog(node, func(log *etcdlog.Log) (Formats, error) {
		f, err := readFormats(ctx, log)
		if err != nil {
			return f, err
		}
		limited, cancel := context.WithTimeout(ctx, finalizeTimeout)
		defer cancel()
		if err := f.Finalize(limited, log); err != nil {
			return f, err
		}
		return readFormats(ctx, log)
	})
}

func (c Config) withLog(node *etcdnode.Manager, do func(*etcdlog.Log) (Formats, error)) (f Formats, err error) {
	options := c.etcdOptions(quiet)
	if node != nil {
		options = etcdlog.Options{Local: node, Prefix: node.Prefix(), Log: quiet}
	}
	log, err := etcdlog.Open(options)
	if err != nil {
		return f, err
	}
	f, err = do(log)
	return f, errors.Join(err, log.Close())
}

func readFormats(ctx context.Context, log *etcdlog.Log) (Formats, error) {
	ctx, cancel := context.WithTimeout(ctx, formatTimeout)
	defer cancel()
	return replica.ReadFormats(ctx, log)
}
