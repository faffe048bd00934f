package state

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/tidwall/btree"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/raft/record"
	"github.com/locket-service/locket/internal/claim"
)

// Get returns a live claim, nil if there is none with this id.
func (s *State) Get(id string) *claim.Claim {
	if l := s.claims[id]; l != nil {
		return l.Claim
	}
	return nil
}

// Holder returns the claim that has held a resource for longest, nil for none.
func (s *State) Holder(resource string) *claim.Claim {
	r := s.rows[resource]
	switch {
	case r == nil:
	case r.holder != nil:
		return r.holder.Claim
	case len(r.shared) > 0:
		return r.shared[0].Claim
	}
	return nil
}

// Queue returns the queue of a resource, with up to limit holders and waiters.
func (s *State) Queue(resource string, limit int) db.Snapshot {
	r := s.rows[resource]
	if r == nil {
		return db.Snapshot{Row: claim.Row{Resource: resource}}
	}
	q := db.Snapshot{Row: r.Row}
	if r.holder != nil {
		q.Holders = []claim.Claim{bare(r.holder.Claim)}
	} else {
		q.Holders = firstOf(r.shared, limit)
	}
	q.Waiters = firstOf(r.waiting, limit)
	return q
}

func firstOf(l line, limit int) (claims []claim.Claim) {
	for _, c := range l[:min(limit, len(l))] {
		claims = append(claims, bare(c.Claim))
	}
	return claims
}

// bare returns a claim without UserData and Value.
func bare(c *claim.Claim) claim.Claim {
	b := *c
	b.UserData, b.Value = nil, ""
	return b
}

// Ahead counts the waiting claims of a resource that were enqueued before a version, up to limit.
func (s *State) Ahead(resource string, enqueued uint64, limit int) int {
	r := s.rows[resource]
	if r == nil {
		return 0
	}
	n, _ := r.waiting.find(enqueued)
	return min(n, limit)
}

// WaitsOf returns claims that wait, of any of the owners, up to limit.
func (s *State) WaitsOf(owners []claim.OwnerKey, limit int) (waits []claim.Claim) {
	for _, p := range owners {
		of := s.owners[p.Owner]
		if p.Session != "" {
			of = s.claimsOf(p.Session)
		}
		for _, l := range of {
			if len(waits) == limit {
				return waits
			}
			if l.Status == claim.Waiting {
				waits = append(waits, bare(l.Claim))
			}
		}
	}
	return waits
}

func (s *State) claimsOf(session string) bag {
	if known := s.sessions[session]; known != nil {
		return known.claims
	}
	return nil
}

// SessionClaims returns the live claims of a session in the order in which they came.
func (s *State) SessionClaims(id string) (claims []claim.Claim) {
	for _, l := range s.claimsOf(id) {
		claims = append(claims, bare(l.Claim))
	}
	slices.SortFunc(claims, func(a, b claim.Claim) int {
		return cmp.Or(cmp.Compare(a.Enqueued, b.Enqueued), cmp.Compare(a.ID, b.ID))
	})
	return claims
}

// Session returns a session, nil if there is none with this id.
func (s *State) Session(id string) *claim.Session {
	if known := s.sessions[id]; known != nil {
		return known.Session
	}
	return nil
}

// Sessions calls yield for the sessions whose ids come after one, in the order of their ids, until it returns false.
func (s *State) Sessions(after string, yield func(*claim.Session) bool) {
	s.ids.Ascend(&session{Session: &claim.Session{ID: after}}, func(known *session) bool {
		return known.ID == after || yield(known.Session)
	})
}

// CountSession counts the claims of a session.
func (s *State) CountSession(id string) (c claim.Count) {
	for _, l := range s.claimsOf(id) {
		c.Add(claim.Transition{After: l.Claim})
	}
	return c
}

// AttachedTo returns the ids of the sessions that are attached to a server.
func (s *State) AttachedTo(server string) (ids []string) {
	for known := range s.attached[server] {
		ids = append(ids, known.ID)
	}
	return ids
}

// Count returns how many live claims there are.
func (s *State) Count() claim.Count {
	return claim.Count{Active: len(s.claims) - s.waits.Len(), Waiting: s.waits.Len()}
}

// Held returns active claims of a type, by id: those of a page.
func (s *State) Held(t claim.Type, page db.Page) []claim.Claim {
	p := pageOf(page)
	p.read([]*btree.BTreeG[*live]{s.holding(t)})
	return p.claims(func(c *claim.Claim) claim.Claim { return *c })
}

// Live returns the live claims of all resources, or of one, by id: those of a page, without UserData, and without
// a Value that is too long for the feed.
func (s *State) Live(resource *string, page db.Page) []claim.Claim {
	p := pageOf(page)
	if resource != nil {
		p.add(s.OfResource(*resource))
	} else {
		p.read(append(slices.Collect(maps.Values(s.holds)), s.waits))
	}
	return p.claims(func(c *claim.Claim) claim.Claim {
		short := *c
		short.UserData = nil
		if len(short.Value) > db.MaxFeedValue {
			short.Value = ""
		}
		return short
	})
}

// OfResource returns the live claims of a resource, in no order.
func (s *State) OfResource(resource string) (claims []*claim.Claim) {
	r := s.rows[resource]
	if r == nil {
		return nil
	}
	if r.holder != nil {
		claims = append(claims, r.holder.Claim)
	}
	for _, l := range slices.Concat(r.shared, r.waiting) {
		claims = append(claims, l.Claim)
	}
	return claims
}

// page gathers the claims of a page.
type page struct {
	db.Page
	found []*claim.Claim
}

func pageOf(p db.Page) *page {
	if p.Limit == 0 {
		p.Limit = math.MaxInt
	}
	return &page{Page: p}
}

// add adds claims, and read the first ones of each of several indexes.
func (p *page) add(claims []*claim.Claim) {
	for _, c := range claims {
		if c.ID > p.After {
			p.found = append(p.found, c)
		}
	}
}

func (p *page) read(indexes []*btree.BTreeG[*live]) {
	for _, index := range indexes {
		n := 0
		index.Ascend(&live{Claim: &claim.Claim{ID: p.After}}, func(l *live) bool {
			if n == p.Limit {
				return false
			}
			if l.ID != p.After {
				p.found = append(p.found, l.Claim)
				n++
			}
			return true
		})
	}
}

// claims returns the page, each claim as show makes it.
func (p *page) claims(show func(*claim.Claim) claim.Claim) []claim.Claim {
	slices.SortFunc(p.found, func(a, b *claim.Claim) int { return cmp.Compare(a.ID, b.ID) })
	budget := db.Budget(p.Bytes)
	claims := make([]claim.Claim, 0, min(p.Limit, len(p.found)))
	for _, c := range p.found[:min(p.Limit, len(p.found))] {
		shown := show(c)
		claims = append(claims, shown)
		if !budget.Take(&shown) {
			break
		}
	}
	return claims
}

// Created returns the live claims in the order of lists, as they are now: what comes later does not change it. It must
// be called where the state may be changed.
func (s *State) Created() *btree.BTreeG[*claim.Claim] { return s.created.Copy() }

// Unused returns, of up to limit rows of resources after a name, those that have no live claims and have not changed
// since before, and the name at which to go on, "" at the end.
func (s *State) Unused(after string, before claim.Time, limit int) (unused []record.Row, next string) {
	seen := 0
	s.names.Ascend(&row{Row: claim.Row{Resource: after}}, func(r *row) bool {
		if r.Resource == after {
			return true
		}
		if seen == limit {
			return false
		}
		seen++
		next = r.Resource
		if r.free() && r.Version < uint64(before) {
			unused = append(unused, record.Row{Name: r.Resource, Version: r.Version, Dropped: true})
		}
		return true
	})
	if seen < limit {
		next = ""
	}
	return unused, next
}
