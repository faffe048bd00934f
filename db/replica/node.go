package replica

import (
	"errors"
	"io"
	"log"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/locket-service/locket/db/replica/filelog"
)

// The limits of Raft's messages and batches.
const (
	maxMessageBytes  = 1 << 20
	maxInflight      = 256
	electionTicks    = 10
	heartbeatTicks   = 1
	firstIndex       = 1 // of the entry that the log of every node follows, as if there had been a snapshot
	firstTerm        = 1
	maxEntriesAtOnce = 64 << 20
)

// node is a member of the cluster: Raft, and its log. It is used by one goroutine at a time.
type node struct {
	raft *raft.RawNode
	log  *filelog.Log
	hard filelog.HardState
	// term is the term that this node leads in, 0 while it does not lead.
	term  uint64
	reads reads
	// apply gets each entry that is committed, in order.
	apply func(*pb.Entry) error
	// send gets the messages for other nodes.
	send func([]*pb.Message)
	// saved is called when entries are durable, before they count.
	saved func() error
	// install takes over the state of a leader's snapshot, durably.
	install func(*pb.SnapshotMetadata) error
}

// newNode starts a node with an id, which has applied the log up to an entry.
func newNode(id uint64, l *filelog.Log, s *storage, applied uint64, apply func(*pb.Entry) error) (*node, error) {
	n := &node{log: l, hard: l.State(), reads: reads{applied: applied}, apply: apply, send: func([]*pb.Message) {}, saved: func() error { return nil }}
	n.install = func(*pb.SnapshotMetadata) error {
		return errors.New("a node by itself has nobody to get a snapshot from")
	}
	n.hard.Commit = max(n.hard.Commit, applied)
	if len(s.conf.GetVoters()) == 1 { // its own log is a majority
		n.hard.Commit = max(n.hard.Commit, l.Last())
	}
	s.hard = n.hard
	var err error
	n.raft, err = raft.NewRawNode(&raft.Config{
		ID: id, ElectionTick: electionTicks, HeartbeatTick: heartbeatTicks, Storage: s, Applied: applied,
		MaxSizePerMsg: maxMessageBytes, MaxCommittedSizePerReady: maxEntriesAtOnce, MaxInflightMsgs: maxInflight,
		CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	return n, err
}

// errNotLeader is returned by propose while another node leads, or none.
var errNotLeader = errors.New("this node does not lead")

// propose proposes a record, and runs. When it returns nil in a cluster of one, the record has been applied. filelog.ErrFull
// says that nothing has happened.
func (n *node) propose(data []byte) error {
	if n.term == 0 {
		return errNotLeader
	}
	if err := n.log.Reserve(len(data)); err != nil {
		return err
	}
	if err := n.raft.Propose(data); err != nil {
		return err
	}
	return n.run()
}

// run does what Raft wants done: it writes the log, sends messages, and applies what is committed.
func (n *node) run() error {
	for n.raft.HasReady() {
		ready := n.raft.Ready()
		if err := n.save(ready); err != nil {
			return err
		}
		n.send(ready.Messages)
		for _, answer := range ready.ReadStates {
			n.answered(answer.RequestCtx, answer.Index)
		}
		for _, e := range ready.CommittedEntries {
			if err := n.apply(e); err != nil {
				return err
			}
			n.reads.applied = e.GetIndex()
		}
		n.raft.Advance(ready)
		if ready.SoftState != nil {
			n.term = 0
			if ready.RaftState == raft.StateLeader {
				n.term = n.hard.Term
			}
		}
		n.serve()
	}
	return nil
}

// save writes entries and the hard state. The commit index is written with the next write.
func (n *node) save(ready raft.Ready) error {
	if !raft.IsEmptyHardState(ready.HardState) {
		n.hard = filelog.HardState{Term: ready.GetTerm(), Vote: ready.GetVote(), Commit: ready.GetCommit()}
	}
	if !raft.IsEmptySnap(ready.Snapshot) {
		meta := ready.Snapshot.GetMetadata()
		if err := n.install(meta); err != nil {
			return err
		}
		if err := n.log.Reset(n.hard, meta.GetIndex(), meta.GetTerm()); err != nil {
			return err
		}
		n.reads.applied = meta.GetIndex()
	}
	if !ready.MustSync {
		return nil
	}
	entries := make([]filelog.Entry, len(ready.Entries))
	for i, e := range ready.Entries {
		entries[i] = filelog.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Kind: uint8(e.GetType()), Data: e.GetData()}
	}
	if err := n.log.Append(n.hard, entries); err != nil {
		return err
	}
	return n.saved()
}

// storage implements the part of a log that Raft reads.
type storage struct {
	log  *filelog.Log
	hard filelog.HardState
	conf *pb.ConfState
	// snapshot returns the metadata of the last snapshot.
	snapshot func() *pb.SnapshotMetadata
}

// InitialState implements raft.Storage.
func (s *storage) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return &pb.HardState{Term: &s.hard.Term, Vote: &s.hard.Vote, Commit: &s.hard.Commit}, s.conf, nil
}

// Entries implements raft.Storage.
func (s *storage) Entries(from, to, bytes uint64) ([]*pb.Entry, error) {
	read, err := s.log.Entries(from, to, int(min(bytes, maxEntriesAtOnce)))
	if err != nil {
		return nil, storageError(err)
	}
	entries := make([]*pb.Entry, len(read))
	for i, e := range read {
		entries[i] = &pb.Entry{Index: &e.Index, Term: &e.Term, Type: pb.EntryType(e.Kind).Enum(), Data: e.Data}
	}
	return entries, nil
}

func storageError(err error) error {
	if errors.Is(err, filelog.ErrCompacted) {
		return raft.ErrCompacted
	}
	return err
}

// Term implements raft.Storage.
func (s *storage) Term(index uint64) (uint64, error) {
	if index > s.log.Last() {
		return 0, raft.ErrUnavailable
	}
	term, err := s.log.Term(index)
	return term, storageError(err)
}

// LastIndex implements raft.Storage.
func (s *storage) LastIndex() (uint64, error) { return s.log.Last(), nil }

// FirstIndex implements raft.Storage.
func (s *storage) FirstIndex() (uint64, error) { return s.log.First(), nil }

// Snapshot implements raft.Storage. The state itself does not travel in messages.
func (s *storage) Snapshot() (*pb.Snapshot, error) {
	meta := s.snapshot()
	if meta == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &pb.Snapshot{Metadata: meta}, nil
}
