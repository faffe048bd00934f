package raft

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/raft/disk/disktest"
	"github.com/locket-service/locket/db/raft/record"
	"github.com/locket-service/locket/db/raft/state"
	"github.com/locket-service/locket/db/raft/wal"
	"github.com/locket-service/locket/internal/claim"
)

// cluster is some nodes and the network between them, which loses and reorders messages.
type cluster struct {
	testing.TB
	*rand.Rand
	nodes         map[uint64]*member
	mail          []*pb.Message
	cut           map[uint64]bool // off the network
	acquired      map[string]bool // claims of which a leader has seen the commit
	claims        int
	asked, served int // reads
}

// member is one node with its state. The disk outlives it.
type member struct {
	*Store
	disk *disktest.Disk
	// dumps are the states at the snapshots that it has offered.
	dumps map[uint64]dump
}

type dump struct {
	at     position
	record []byte
}

const clusterLog = 77

func newCluster(t testing.TB, seed uint64, size int) *cluster {
	c := &cluster{TB: t, Rand: rand.New(rand.NewPCG(seed, 0)), nodes: map[uint64]*member{}, cut: map[uint64]bool{}, acquired: map[string]bool{}}
	for id := range uint64(size) {
		d := disktest.New()
		l, err := wal.Create(d, clusterLog, wal.HardState{Term: firstTerm, Commit: firstIndex}, firstIndex, firstTerm, wal.Options{SegmentBytes: 8192})
		c.must(err)
		c.start(id+1, &member{disk: d}, l, size)
	}
	return c
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// start starts a node on its log, from nothing: its state comes from the log, or from another node.
func (c *cluster) start(id uint64, m *member, l *wal.Log, size int) {
	m.Store = &Store{log: l, state: state.New(), LocalFeed: db.NewLocalFeed(time.Now), pending: newPending(0, 1<<20, func(*claim.Claim) {}), applied: position{index: firstIndex, term: firstTerm}}
	m.dumps = map[uint64]dump{}
	conf := &pb.ConfState{}
	for n := range uint64(size) {
		conf.Voters = append(conf.Voters, n+1)
	}
	snapshot := func() *pb.SnapshotMetadata {
		data, _ := record.Append(nil, 0, m.state.Dump())
		m.dumps[m.applied.index] = dump{m.applied, data}
		return &pb.SnapshotMetadata{Index: new(m.applied.index), Term: new(m.applied.term), ConfState: conf}
	}
	var err error
	m.node, err = newNode(id, l, &storage{log: l, conf: conf, snapshot: snapshot}, firstIndex, m.apply)
	c.must(err)
	m.node.send = func(messages []*pb.Message) { c.mail = append(c.mail, messages...) }
	m.node.install = func(meta *pb.SnapshotMetadata) error { return c.transfer(m, meta.GetIndex()) }
	c.nodes[id] = m
}

// transfer gives a node the state of a snapshot that another one has offered.
func (c *cluster) transfer(to *member, index uint64) error {
	for _, from := range c.nodes {
		if d, has := from.dumps[index]; has {
			decoded, err := record.Read(d.record)
			if err != nil {
				return err
			}
			to.state, to.applied = state.New(), d.at
			_, err = to.state.ApplyDecoded(decoded)
			return err
		}
	}
	return fmt.Errorf("no node has offered a snapshot at %d", index)
}

// deliver delivers the messages there are, one of so many lost, until there are no more.
func (c *cluster) deliver(lost int) {
	for n := 0; len(c.mail) > 0 && n < 10_000; n++ {
		i := c.IntN(min(len(c.mail), 3))
		m := c.mail[i]
		c.mail = slices.Delete(c.mail, i, i+1)
		to := c.nodes[m.GetTo()]
		arrives := !c.cut[m.GetTo()] && !c.cut[m.GetFrom()] && (lost == 0 || c.IntN(lost) > 0)
		if arrives {
			_ = to.node.raft.Step(m)
			c.must(to.node.run())
		}
		if m.GetType() == pb.MsgSnap { // the leader sends nothing else until it hears what became of it
			status := raft.SnapshotFinish
			if !arrives {
				status = raft.SnapshotFailure
			}
			from := c.nodes[m.GetFrom()].node
			from.raft.ReportSnapshot(m.GetTo(), status)
			c.must(from.run())
		}
	}
}

// tick lets time pass on all nodes.
func (c *cluster) tick(n, lost int) {
	for range n {
		for id := range uint64(len(c.nodes)) {
			node := c.nodes[id+1].node
			node.tick()
			c.must(node.run())
		}
		c.deliver(lost)
	}
}

// leader waits until a node of those that are not cut off leads, and has applied all that was decided before its term.
func (c *cluster) leader() *member {
	c.Helper()
	for range 1000 {
		for id, m := range c.nodes {
			if status := m.node.raft.BasicStatus(); !c.cut[id] && m.node.term != 0 && m.applied.term == m.node.term && status.GetTerm() == m.node.term {
				return m
			}
		}
		c.tick(1, 0)
	}
	c.Fatal("nobody leads")
	return nil
}

// acquire has a node make a claim. It is there for good when that node has applied it. The node decides nothing while it
// does not know what becomes of what it has decided before.
func (c *cluster) acquire(on *member) (committed bool) {
	if on.log.Last() != on.applied.index {
		return false
	}
	c.claims++
	cmd := claim.Create{ID: fmt.Sprint(c.claims), Resource: fmt.Sprint(c.claims % 5), TTL: time.Hour, Mode: claim.Mode(c.IntN(2))}
	qs := on.state.Load(claim.Instant{Wall: claim.Time(c.claims), Lease: on.state.Lease}, db.Wanted{Resources: []string{cmd.Resource}}, func(string) *claim.Claim { return nil })
	_, err := qs.Do(cmd)
	c.must(err)
	r := &record.Record{Header: record.Header{Term: on.node.term, Wall: claim.Time(c.claims), Lease: on.state.Lease + 1}, Claims: record.Merge(qs.Transitions())}
	data, _ := record.Append(nil, on.applied.sum, r)
	if err := on.node.propose(data); err != nil {
		return false
	}
	c.deliver(0)
	if on.state.Get(cmd.ID) != nil {
		c.acquired[cmd.ID] = true
	}
	return on.state.Get(cmd.ID) != nil
}

// read has a node be read. When it is, it has all that was acquired before.
func (c *cluster) read(on *member) {
	before := slices.Collect(maps.Keys(c.acquired))
	c.asked++
	on.node.read(func() {
		c.served++
		for _, id := range before {
			if on.state.Get(id) == nil {
				c.Errorf("a read misses claim %s, which was acquired before it", id)
			}
		}
	})
	c.must(on.node.run())
}

// readAll has each of the nodes be read, and waits until all have been.
func (c *cluster) readAll() {
	c.Helper()
	c.asked, c.served = 0, 0
	for _, m := range c.nodes {
		for range 3 {
			c.read(m)
		}
	}
	for n := 0; c.served < c.asked; n++ {
		if n == 1000 {
			c.Fatalf("%d of %d reads are answered", c.served, c.asked)
		}
		c.tick(1, 0)
	}
}

// agree waits until all nodes have the same state, in which is all that was acquired.
func (c *cluster) agree() {
	c.Helper()
	clear(c.cut)
	c.leader()
	c.tick(3*electionTicks, 0)
	l := c.leader()
	c.tick(2, 0)
	want, _ := record.Append(nil, 0, l.state.Dump())
	for id, m := range c.nodes {
		got, _ := record.Append(nil, 0, m.state.Dump())
		if string(got) != string(want) || m.applied != l.applied {
			c.Fatalf("node %d is at %+v, the leader at %+v", id, m.applied, l.applied)
		}
	}
	for id := range c.acquired {
		if l.state.Get(id) == nil {
			c.Fatalf("claim %s is lost", id)
		}
	}
}

// TestCluster has two and three nodes, of which some are cut off, stopped without power, or fall so far behind that the
// log does not have what they lack.
func TestCluster(t *testing.T) {
	for seed := range uint64(clusters) {
		c := newCluster(t, seed, 2+int(seed%2))
		for range 12 {
			l := c.leader()
			for range c.IntN(8) {
				if !c.acquire(l) {
					break
				}
				c.read(c.nodes[1+c.Uint64N(uint64(len(c.nodes)))])
			}
			switch c.IntN(5) {
			case 0: // the leader is cut off, and decides more all the same: nobody hears of it
				c.cut[l.node.raft.BasicStatus().ID] = true
				c.acquire(l)
				if len(c.nodes) > 2 {
					c.acquire(c.leader())
					c.read(l) // it does not know of that
					c.tick(c.IntN(electionTicks), 0)
				}
				clear(c.cut)
			case 1: // a follower is behind, and the log is cut
				behind := 1 + c.Uint64N(uint64(len(c.nodes)))
				if len(c.nodes) > 2 && c.nodes[behind] != l {
					c.cut[behind] = true
					for n := 0; n < 400 && l.log.First() <= 2; n++ {
						c.acquire(l)
						c.must(l.log.Compact(l.applied.index))
					}
					clear(c.cut)
				}
			case 2:
				c.powerCut(1 + c.Uint64N(uint64(len(c.nodes))))
			case 3:
				c.tick(electionTicks, 4)
			}
		}
		c.agree()
		c.readAll()
	}
}

// TestReadsShareRounds: reads that come while a round is under way share the next one, on the leader and on others.
func TestReadsShareRounds(t *testing.T) {
	c := newCluster(t, 1, 3)
	l := c.leader()
	c.acquire(l)
	for _, m := range c.nodes {
		before := m.node.reads.round
		c.asked, c.served = 0, 0
		for range 100 {
			c.read(m)
		}
		c.deliver(0)
		if c.served != 100 || m.node.reads.round != before+2 {
			t.Errorf("%d reads answered in %d rounds", c.served, m.node.reads.round-before)
		}
	}
}

// TestReadByItself: a node by itself answers at once.
func TestReadByItself(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.leader()
	c.asked, c.served = 0, 0
	c.read(c.nodes[1])
	if c.served != 1 {
		t.Error("the read waits")
	}
}

// powerCut stops a node without warning, and starts it again with what its disk has.
func (c *cluster) powerCut(id uint64) {
	m := c.nodes[id]
	if m.log.First() > firstIndex+1 {
		return // its state is not on the disk of this test
	}
	m.disk = m.disk.Crash(c.Rand)
	l, err := wal.Open(m.disk, clusterLog, 0, wal.Options{SegmentBytes: 8192})
	c.must(err)
	c.start(id, m, l, len(c.nodes))
}

// TestVoid: a record that another leader has decided than the one of its entry's term changes nothing, on any node.
func TestVoid(t *testing.T) {
	c := newCluster(t, 1, 3)
	l := c.leader()
	c.acquire(l)
	r := &record.Record{Header: record.Header{Term: l.node.term - 1}, Claims: []claim.Transition{{After: &claim.Claim{ID: "void", Resource: "r", Status: claim.Active}}}}
	data, _ := record.Append(nil, l.applied.sum, r)
	before := l.applied
	c.must(l.node.propose(data))
	c.deliver(0)
	c.tick(2, 0)
	if l.applied.index != before.index+1 || l.applied.sum != before.sum || l.state.Get("void") != nil {
		t.Errorf("applied %+v, before %+v, and has %+v", l.applied, before, l.state.Get("void"))
	}
	c.acquire(l)
	c.agree()
}
