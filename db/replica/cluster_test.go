package replica

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/state"
	"github.com/locket-service/locket/internal/rules/claim"
)

// cluster is some nodes and the network between them, which loses and reorders messages.
type cluster struct {
	testing.TB
	*rand.Rand
	nodes         map[uint64]*member
	mail          []*pb.Message
	cut           map[uint64]bool // off the network
	acquired      map[string]bool // claims whose commit a leader has seen
	claims        int
	asked, served int // reads
	// started, unless it is nil, is called with a node that was started, and turn after each of its turns.
	started, turn func(*member)
}

// member is one node with its state. The disk outlives it.
type member struct {
	*Store
	id   uint64
	disk *disktest.Disk
	// saved is its last snapshot, which outlives it too, nil for none.
	saved *dump
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
		l, err := filelog.Create(d, clusterLog, filelog.HardState{Term: firstTerm, Commit: firstIndex}, firstIndex, firstTerm, filelog.Options{SegmentBytes: 8192})
		c.must(err)
		c.start(&member{id: id + 1, disk: d}, l, size)
	}
	return c
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// start starts a node on its snapshot and its log.
func (c *cluster) start(m *member, l *filelog.Log, size int) {
	m.Store = &Store{
		log: l, state: state.New(), clock: leaseClock{wall: time.Now}, LocalFeed: db.NewLocalFeed(time.Now),
		options: Options{OutcomeBytes: maxOutcomeBytes},
		pending: newPending(0, maxPendingBytes, func(*claim.Claim) {}), applied: position{index: firstIndex, term: firstTerm},
		writing: make(chan struct{}, 1), proposals: make(chan struct{}, maxProposals), commits: make(chan *proposal, maxProposals),
		closed: make(chan struct{}), broken: make(chan struct{}),
	}
	m.hang = newHangTimer(m.hung)
	m.dumps = map[uint64]dump{}
	if m.saved != nil {
		c.must(m.restore(*m.saved))
	}
	conf := &pb.ConfState{}
	for n := range uint64(size) {
		conf.Voters = append(conf.Voters, n+1)
	}
	snapshot := func() *pb.SnapshotMetadata {
		if len(m.proposed) > 0 { // the state has more than is committed
			return nil
		}
		m.dumps[m.applied.index] = m.dump()
		return &pb.SnapshotMetadata{Index: new(m.applied.index), Term: new(m.applied.term), ConfState: conf}
	}
	var err error
	m.node, err = newNode(m.id, l, &storage{log: l, conf: conf, snapshot: snapshot}, m.applied.index, func(e *pb.Entry) error { return m.apply(e) })
	c.must(err)
	m.node.send = func(messages []*pb.Message) { c.mail = append(c.mail, messages...) }
	m.node.install = func(meta *pb.SnapshotMetadata) error { return c.transfer(m, meta.GetIndex()) }
	c.nodes[m.id] = m
	if c.started != nil {
		c.started(m)
	}
}

// dump returns the state of an idle node, and restore brings one back.
func (m *member) dump() dump {
	data, _ := record.Append(nil, 0, m.state.Dump())
	return dump{m.applied, data}
}

func (m *member) restore(from dump) error {
	decoded, err := record.Read(from.record)
	if err != nil {
		return err
	}
	m.state, m.applied = state.New(), from.at
	_, err = m.state.ApplyDecoded(decoded)
	return err
}

// compact makes a snapshot of a node, and has its log forget what is in it.
func (c *cluster) compact(m *member) {
	if len(m.proposed) == 0 {
		m.saved = new(m.dump())
		c.must(m.log.Compact(m.applied.index))
	}
}

// transfer gives a node the state of a snapshot that another one has offered.
func (c *cluster) transfer(to *member, index uint64) error {
	for _, from := range c.nodes {
		if d, has := from.dumps[index]; has {
			to.saved = &d
			return to.restore(d)
		}
	}
	return fmt.Errorf("no node has offered a snapshot at %d", index)
}

// run has a node do what Raft wants done. If others have decided meanwhile it is started again, as its process would be.
func (c *cluster) run(m *member) {
	c.Helper()
	if err := m.node.run(); errors.Is(err, errDeposed) {
		c.restart(m, m.disk.Kill())
	} else {
		c.must(err)
	}
	if c.turn != nil {
		c.turn(m)
	}
}

// restart stops a node, and starts it again with a disk.
func (c *cluster) restart(m *member, d *disktest.Disk) {
	m.disk = d
	var least uint64
	if m.saved != nil {
		least = m.saved.at.index
	}
	l, err := filelog.Open(d, clusterLog, least, filelog.Options{SegmentBytes: 8192})
	c.must(err)
	c.start(m, l, len(c.nodes))
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
			c.run(to)
		}
		if m.GetType() == pb.MsgSnap { // the leader sends nothing else until it hears the outcome
			status := raft.SnapshotFinish
			if !arrives {
				status = raft.SnapshotFailure
			}
			from := c.nodes[m.GetFrom()]
			from.node.raft.ReportSnapshot(m.GetTo(), status)
			c.run(from)
		}
	}
}

// tick lets time pass on all nodes.
func (c *cluster) tick(n, lost int) {
	for range n {
		for id := range uint64(len(c.nodes)) {
			m := c.nodes[id+1]
			m.node.tick()
			c.run(m)
		}
		c.deliver(lost)
	}
}

// leader waits until a connected node leads, and has applied all decisions from before its term.
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

// acquire has a node make a claim, which is permanent once that node has applied it. The node decides nothing while the
// outcome of its earlier decisions is unknown.
func (c *cluster) acquire(on *member) (committed bool) {
	if on.log.Last() != on.applied.index {
		return false
	}
	c.claims++
	cmd := claim.Create{ID: fmt.Sprint(c.claims), Resource: fmt.Sprint(c.claims % 5), TTL: time.Hour, Units: dbtest.EitherUnits(c.IntN(2))}
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
	c.run(on)
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

// agree waits until all nodes have the same state, with everything that was acquired.
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

// TestCluster has two and three nodes. Some of them are cut off, stopped without power, or fall so far behind that the
// log does not have the entries that they lack.
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
			case 0: // the leader is cut off, and still decides more: nobody hears of it
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
						c.compact(l)
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

// powerCut stops a node without warning, and starts it again from its disk.
func (c *cluster) powerCut(id uint64) {
	m := c.nodes[id]
	c.restart(m, m.disk.Crash(c.Rand))
}

// TestLeaseTimeOfAnotherLeader: a node that leads again continues with the lease time that the leader before it
// recorded, not with its own count in memory from when it led before. Otherwise leases renewed in the meantime would
// end early.
func TestLeaseTimeOfAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const recorded = claim.Time(1e15)
		clock := leaseClock{wall: time.Now}
		clock.start(recorded)
		for range 16 {
			time.Sleep(db.BeatInterval)
			clock.tick(time.Now())
		}
		renewed := recorded.Add(time.Second) // by another leader, for 10 s
		due := renewed.Add(10 * time.Second)
		clock.start(renewed)
		begin := time.Now()
		for clock.last() < due {
			time.Sleep(db.BeatInterval)
			clock.tick(time.Now())
		}
		if lasted := time.Since(begin); lasted < 10*time.Second {
			t.Errorf("the lease has ended %v after it was renewed", lasted)
		}
	})
}

// TestVoid: a record decided by another leader than its entry's term says changes nothing, on any node.
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
