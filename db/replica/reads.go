package replica

import "encoding/binary"

// reads wait until a node's state has everything that any node acknowledged before they came. A round asks the leader
// how far the log is committed, and the voters whether it still leads (ReadIndex). Reads that come during a round share
// the next one: this round's answer may be older than they are.
type reads struct {
	round uint64 // the number of the last one; no two have the same
	ticks int    // since it began
	next  []func()
	asked []func() // in the last round; none when it has been answered
	known []knownReads
	// applied is the last entry that the state has.
	applied uint64
}

// knownReads wait until the state has an entry.
type knownReads struct {
	index uint64
	done  []func()
}

// read calls done when the state has everything acknowledged before. It is called by the goroutine that owns the node,
// and so is done. While no leader is known, or it is cut off, nothing is called.
func (n *node) read(done func()) {
	n.reads.next = append(n.reads.next, done)
	n.ask()
}

// ask begins a round if reads wait for one, and none is under way.
func (n *node) ask() {
	if r := &n.reads; len(r.asked) == 0 && len(r.next) > 0 {
		r.asked, r.next = r.next, nil
		n.beginRound()
	}
}

func (n *node) beginRound() {
	n.reads.round++
	n.reads.ticks = 0
	n.raft.ReadIndex(binary.BigEndian.AppendUint64(nil, n.reads.round))
}

// tick lets time pass. A round that is not answered is lost, with its leader or on the network: another one begins.
func (n *node) tick() {
	n.raft.Tick()
	if n.reads.ticks++; len(n.reads.asked) > 0 && n.reads.ticks >= electionTicks {
		n.beginRound()
	}
}

// answered notes that the log was committed up to an index when a round began.
func (n *node) answered(round []byte, index uint64) {
	if r := &n.reads; len(round) == 8 && binary.BigEndian.Uint64(round) == r.round && len(r.asked) > 0 {
		r.known = append(r.known, knownReads{index, r.asked})
		r.asked = nil
	}
}

// serve answers the reads that the state is new enough for, and begins the next round.
func (n *node) serve() {
	r := &n.reads
	for len(r.known) > 0 && r.known[0].index <= r.applied {
		done := r.known[0].done
		r.known = r.known[1:]
		for _, f := range done {
			f()
		}
	}
	n.ask()
}
