package etcdnode

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcd "go.etcd.io/etcd/client/v3"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
)

const (
	// promotePause is the time between two attempts of a learner to become a member with a vote.
	promotePause = 200 * time.Millisecond
	// lookPause is the time between two looks at the size of the file and at alarms.
	lookPause = time.Minute
	// loose is how many bytes of the file may hold no data before a node that does not lead defragments it.
	loose = 512 << 20
)

// upkeep does what a node does by itself, until ctx or etcd ends.
func (n *Node) upkeep(ctx context.Context) {
	defer close(n.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case err := <-n.etcd.Err():
			n.fail(ctx, n.explain(err))
		case <-n.etcd.Server.StopNotify():
			n.fail(ctx, n.explain(nil))
		case <-ctx.Done():
		}
	}()
	n.promote(ctx)
	for waited := lookOut; pause(ctx, lookOut); waited += lookOut {
		if err := n.givenUp(ctx); err != nil {
			n.fail(ctx, err)
			return
		}
		var err error
		if n.notePeers() {
			err = n.folder.save()
		}
		if waited%lookPause == 0 {
			err = errors.Join(err, n.tidy(ctx))
		}
		if err != nil {
			n.options.Log.Warn("etcd could not be looked after", "error", err)
		}
	}
}

// fail reports that etcd has ended, unless it was stopped.
func (n *Node) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	select {
	case n.failed <- err:
	default: // it has failed already
	}
}

// promote makes a learner a member with a vote, once it has caught up.
func (n *Node) promote(ctx context.Context) {
	said := false
	for n.etcd.Server.IsLearner() {
		_, err := n.etcd.Server.PromoteMember(ctx, uint64(n.etcd.Server.MemberID()))
		switch {
		case err == nil:
			n.options.Log.Info("this node has caught up, and is a member of the cluster with a vote now")
		case !said && ctx.Err() == nil && !errors.Is(err, etcderrors.ErrLearnerNotReady):
			said = true
			n.options.Log.Info("this node cannot have a vote yet", "reason", err)
		}
		if !pause(ctx, promotePause) {
			return
		}
	}
}

// tidy defragments the file when much of it holds no data, and ends the alarm about its size. The node answers nothing
// meanwhile, so a leader leaves it until it does not lead, unless nothing can be written anyway.
func (n *Node) tidy(ctx context.Context) error {
	be := n.etcd.Server.Backend()
	full := n.alarms()
	if free := be.Size() - be.SizeInUse(); !full && (free < loose || n.etcd.Server.Leader() == n.etcd.Server.MemberID()) {
		return nil
	}
	before := be.Size()
	if err := be.Defrag(); err != nil {
		return err
	}
	n.options.Log.Info("etcd's file was defragmented", "bytes_before", before, "bytes_after", be.Size())
	if !full || be.Size() > quota/4*3 {
		return nil
	}
	_, err := n.client.AlarmDisarm(ctx, &etcd.AlarmMember{MemberID: n.folder.id.MemberID, Alarm: pb.AlarmType_NOSPACE})
	return err
}

// alarms reports whether this node has said that its file is too large.
func (n *Node) alarms() bool {
	for _, alarm := range n.etcd.Server.Alarms() {
		if alarm.GetMemberID() == n.folder.id.MemberID && alarm.GetAlarm() == pb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}
