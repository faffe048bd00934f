package replica

import (
	"slices"
	"time"

	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// maxPendingBytes bounds what is kept of claims that have ended for a history that cannot be written. When there is
// more, the oldest are given up, and the history has a gap: the locks go on.
const maxPendingBytes = 256 << 20

// pending are the claims that have ended and are on their way to the history.
type pending struct {
	// written is the last entry that the history covers, as far as readers here know.
	written uint64
	ended   []history.Ended // in order; what is there never changes
	byID    map[string]*claim.Claim
	bytes   int
	most    int // bytes
	// late is since when much is pending without a write to the history; zero while little is.
	late time.Time
	gap  *history.Gap
	// left is called with each claim that leaves.
	left func(*claim.Claim)
}

func newPending(written uint64, most int, left func(*claim.Claim)) pending {
	return pending{written: written, byID: make(map[string]*claim.Claim), most: most, left: left}
}

// expect records a claim whose end is not committed yet, so that it can be looked up.
func (p *pending) expect(c *claim.Claim) { p.byID[c.ID] = c }

func (p *pending) add(entry uint64, c *claim.Claim) {
	p.ended = append(p.ended, history.Ended{Entry: entry, Claim: c})
	p.byID[c.ID] = c
	p.bytes += pendingBytes(c)
	if p.late.IsZero() && p.much() {
		p.late = time.Now()
	}
	if p.bytes <= p.most {
		return
	}
	n := len(p.ended) / 2
	if p.gap == nil {
		p.gap = &history.Gap{After: p.written}
	}
	p.gap.Entry, p.gap.Claims = p.ended[n-1].Entry, p.gap.Claims+n
	p.drop(n)
}

// forget forgets a claim whose id has been reused: when that was decided the old claim was no longer known, because it
// was given up, or deleted from the history.
func (p *pending) forget(id string) {
	c := p.byID[id]
	if c == nil {
		return
	}
	delete(p.byID, id)
	p.bytes -= pendingBytes(c)
	p.ended = slices.DeleteFunc(slices.Clone(p.ended), func(e history.Ended) bool { return e.Claim == c })
}

// cut forgets the claims that cuts delete.
func (p *pending) cut(cuts record.Cuts) {
	cut := func(e history.Ended) bool { return cuts.Delete(e.Entry, e.Claim) }
	for _, e := range p.ended {
		if cut(e) {
			p.leave(e.Claim)
		}
	}
	p.ended = slices.DeleteFunc(slices.Clone(p.ended), cut)
}

// much reports whether so much is kept that further ends must wait. There is room for the ends of two transactions.
func (p *pending) much() bool { return p.bytes > p.most/4 }

// drop forgets the first claims.
func (p *pending) drop(n int) {
	for _, e := range p.ended[:n] {
		p.leave(e.Claim)
	}
	p.ended = append([]history.Ended(nil), p.ended[n:]...)
}

// leave counts a claim no longer.
func (p *pending) leave(c *claim.Claim) {
	if p.byID[c.ID] == c {
		delete(p.byID, c.ID)
		p.left(c)
	}
	p.bytes -= pendingBytes(c)
}

// upTo returns how many claims that have ended up to an entry the history does not have.
func (p *pending) upTo(entry uint64) (n uint64) {
	if p.gap != nil {
		n = uint64(p.gap.Claims)
	}
	for _, e := range p.ended {
		if e.Entry <= entry {
			n++
		}
	}
	return n
}

func pendingBytes(c *claim.Claim) int {
	bytes := 512 + len(c.UserData)
	for _, text := range [...]string{c.ID, c.Resource, c.Owner, c.Identity, c.Session, c.Value, c.Reason, c.EndedBy} {
		bytes += len(text)
	}
	return bytes
}

// done notes that the history has everything up to an entry, and no other claims than those.
func (p *pending) done(entry uint64, gap *history.Gap) {
	n := 0
	for n < len(p.ended) && p.ended[n].Entry <= entry {
		n++
	}
	p.drop(n)
	if p.written, p.late = entry, (time.Time{}); p.much() {
		p.late = time.Now()
	}
	switch {
	case p.gap == nil:
	case p.gap.Entry <= entry, gap != nil && p.gap.Entry == gap.Entry: // what was given up meanwhile has been written
		p.gap = nil
	default: // it has grown meanwhile
		p.gap.After = entry
		if gap != nil {
			p.gap.Claims -= gap.Claims
		}
	}
}
