package state

import (
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// waitersChunk is how many waiting claims a queue takes at once.
const waitersChunk = 16

// Finished returns a claim that is live no longer, nil if there is none with this id.
type Finished func(id string) *claim.Claim

// Load returns the queues that a transaction wants (db.Tx). The state must not change while the queues are used, and
// they must be used before it changes.
func (s *State) Load(now claim.Instant, wanted db.Wanted, finished Finished) *claim.Queues {
	l := loading{State: s, Wanted: wanted, finished: finished, due: db.MaxDue, ends: claim.MaxEnds}
	l.qs = claim.NewQueues(now, len(wanted.Resources)+len(wanted.Claims))
	for _, name := range wanted.Resources {
		l.resource(name)
	}
	for _, id := range wanted.Claims {
		l.claim(id)
	}
	for _, id := range wanted.Sessions {
		l.session(id)
	}
	return l.qs
}

// loading is one Load.
type loading struct {
	*State
	db.Wanted
	finished Finished
	qs       *claim.Queues
	// due is how many shared holders that are due may still be loaded, and ends how many claims of sessions.
	due, ends int
}

func (l *loading) resource(name string) {
	if l.qs.Resource(name) != nil {
		return
	}
	r := l.known(name)
	if r == nil {
		l.qs.Put(claim.NewQueue(claim.Row{Resource: name}, l.floor, nil))
		return
	}
	l.qs.Put(claim.NewQueue(l.ruled(r), l.floor, l.waiters))
	switch {
	case r.holder != 0:
		_, whole := slices.BinarySearch(l.WholeHolders, name)
		l.qs.Add(l.brief(l.holder(r), whole))
	case len(r.shared()) > 0:
		for _, holder := range r.sharedDue(l.qs.Now.Lease, max(1, l.due)) {
			l.qs.Add(l.brief(holder, false))
			l.due--
		}
	}
}

func (l *loading) claim(id string) {
	if known := l.live(id); known != nil {
		l.resource(l.rowOf(known).name)
		l.qs.Add(l.brief(known, false))
		return
	}
	if found := l.finished(id); found != nil {
		l.resource(found.Resource)
		l.qs.Add(l.short(found))
	}
}

// session loads a session if there is one, and its claims, or only waiting ones, as far as there is room. They are in
// the same order on every server.
func (l *loading) session(id string) {
	s := l.sessions[id]
	if s == nil || s.Session == nil {
		return
	}
	_, ending := slices.BinarySearch(l.Ending, id)
	if _, withdrawing := slices.BinarySearch(l.Withdrawing, id); !ending && !withdrawing {
		l.qs.PutSession(*s.Session)
		return
	}
	if l.ends == 0 && len(s.claims) > 0 { // to look at many claims takes long, and there is room for none
		l.qs.PutPart(*s.Session)
		return
	}
	var claims []string
	put := l.qs.PutSession
	for _, status := range []claim.Status{claim.Waiting, claim.Active} {
		if status == claim.Active && !ending {
			continue
		}
		var ids []string
		for _, c := range s.claims {
			if c.status == status {
				ids = append(ids, c.id())
			}
		}
		slices.Sort(ids)
		room := min(len(ids), l.ends)
		if room < len(ids) {
			put = l.qs.PutPart
		}
		claims = append(claims, ids[:room]...)
		l.ends -= room
	}
	for _, id := range claims {
		l.claim(id)
	}
	put(*s.Session, claims...)
}

// brief returns a claim without data longer than claim.MaxBrief, unless the whole claim is asked for.
func (l *loading) brief(of *live, whole bool) *claim.Claim {
	c := new(claim.Claim)
	if of.unpackBrief(c, claim.MaxBrief); !c.Brief {
		return c
	}
	if _, named := slices.BinarySearch(l.WholeClaims, c.ID); whole || named {
		of.unpack(c)
	}
	return c
}

// short is brief for a claim that has ended.
func (l *loading) short(c *claim.Claim) *claim.Claim {
	if len(c.UserData) <= claim.MaxBrief && len(c.Value) <= claim.MaxBrief {
		return c
	}
	if _, whole := slices.BinarySearch(l.WholeClaims, c.ID); whole {
		return c
	}
	short := *c
	short.Brief = true
	if len(c.UserData) > claim.MaxBrief {
		short.UserData = nil
	}
	if len(c.Value) > claim.MaxBrief {
		short.Value = ""
	}
	return &short
}

// waiters is the claim.MoreWaiters of the queues.
func (l *loading) waiters(resource string, after uint64) ([]*claim.Claim, error) {
	waiting := l.known(resource).waiting()
	from, found := waiting.find(after)
	if found {
		from++
	}
	next := make([]*claim.Claim, 0, waitersChunk)
	for _, c := range waiting[from:min(from+waitersChunk, len(waiting))] {
		next = append(next, l.brief(c, false))
	}
	return next, nil
}
