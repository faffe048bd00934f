package replica

import (
	"context"
	"fmt"
	"time"
)

// enterCluster makes a new folder one of the cluster's.
func (s *Store) enterCluster() error {
	if !s.folder.fresh {
		return nil
	}
	id, err := s.cluster.id(s.folder.log, 0)
	if err != nil || id == s.folder.log {
		return err
	}
	s.folder.log = id
	return s.folder.note(stateNew)
}

// joinCluster checks that the folder is one of the cluster's. The first server of a cluster may have served by itself before: the
// log of the cluster then follows its own.
func (s *Store) joinCluster() error {
	if s.folder.joins {
		if err := s.snapshotForOthers(); err != nil {
			return err
		}
	}
	proposed := s.folder.log
	if !s.folder.fresh && !s.folder.joins { // its cluster has begun
		proposed = 0
	}
	id, err := s.cluster.id(proposed, s.log.Last())
	switch {
	case err != nil:
		return err
	case id == 0:
		return fmt.Errorf("%w: %s is of a server of a cluster, and the log of the cluster is not there: name the etcd and the prefix as before; if the log is lost, stop all servers, back up the folder whose log is the longest, and restore the backup into a new cluster",
			ErrFolder, s.folder.path)
	case id != s.folder.log:
		return fmt.Errorf("%w: %s is of another cluster, or of a server by itself: its log is %x, and this cluster's is %x. Begin a cluster with it, under an unused prefix or in new nodes; or give an empty folder", ErrFolder, s.folder.path, s.folder.log, id)
	case s.folder.joins:
		return s.folder.note(stateCluster)
	}
	return nil
}

// snapshotForOthers makes a snapshot of all that a server has that served by itself: other servers join with it.
func (s *Store) snapshotForOthers() error {
	if err := s.openForWriting(); err != nil {
		return err
	}
	return s.onTurn(context.Background(), s.makeSnapshot)
}

// id returns the id of the cluster. If there is none, this server's id and log begin one, unless the id is 0.
func (c *cluster) id(proposed, last uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	id, err := c.Log.Cluster(ctx, proposed, last)
	return id, clusterUnavailable(err)
}

// joinTimeout is how long the start of a server waits for the log of the cluster, and to have everything in it.
const joinTimeout = 30 * time.Second

// catchUp waits until the state has everything that was committed.
func (c *cluster) catchUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	for {
		err := c.wait(ctx)
		if failure := c.s.Failure(); failure != nil {
			return failure
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, followPause)
	}
}
