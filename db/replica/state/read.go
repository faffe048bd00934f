package state

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/index"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Get returns a live claim, nil if there is none with this id.
func (s *State) Get(id string) *claim.Claim {
	if l := s.live(id); l != nil {
		return l.claim()
	}
	return nil
}

// Has reports whether there is a live claim with an id.
func (s *State) Has(id string) bool { return s.claims.Find(id) != 0 }

// Holder returns the claim that has held a resource for longest, nil for none.
func (s *State) Holder(resource string) *claim.Claim {
	if r := s.known(resource); r != nil {
		if first := s.first(r); first != nil {
			return first.claim()
		}
	}
	return nil
}

// Queue returns the queue of a resource, with up to limit holders and waiters.
func (s *State) Queue(resource string, limit int) db.Snapshot {
	r := s.known(resource)
	if r == nil {
		return db.Snapshot{Row: claim.Row{Resource: resource}}
	}
	q := db.Snapshot{Row: s.ruled(r)}
	if holder := s.holder(r); holder != nil {
		q.Holders = []claim.Claim{holder.queued()}
	} else {
		q.Holders = firstOf(r.shared(), limit)
	}
	q.Waiters = firstOf(r.waiting(), limit)
	return q
}

func firstOf(l line, limit int) (claims []claim.Claim) {
	for _, c := range l[:min(limit, len(l))] {
		claims = append(claims, c.queued())
	}
	return claims
}

// Ahead counts the waiting claims of a resource that were enqueued before a version, up to limit.
func (s *State) Ahead(resource string, enqueued uint64, limit int) int {
	r := s.known(resource)
	if r == nil {
		return 0
	}
	n, _ := r.waiting().find(enqueued)
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
			if l.status == claim.Waiting {
				waits = append(waits, l.bare())
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

// SessionClaims returns the live claims of a session in order of arrival.
func (s *State) SessionClaims(id string) (claims []claim.Claim) {
	for _, l := range s.claimsOf(id) {
		claims = append(claims, l.bare())
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
	s.ids.Ascend(func(known *session) bool { return known.ID < after }, func(known *session) bool {
		return known.ID == after || yield(known.Session)
	})
}

// CountSession counts the claims of a session.
func (s *State) CountSession(id string) (c claim.Count) {
	for _, l := range s.claimsOf(id) {
		if l.status == claim.Active {
			c.Active++
		} else {
			c.Waiting++
		}
	}
	return c
}

// Usage counts the live claims of an identity, without those with some ids.
func (s *State) Usage(identity string, except []string) claim.Count {
	usage := s.counts[identity]
	for _, id := range except {
		if c := s.Get(id); c != nil && c.Identity == identity && identity != "" {
			usage = usage.Without(c.Status)
		}
	}
	return usage
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
	return claim.Count{Active: s.claims.Len() - s.waits.Len(), Waiting: s.waits.Len()}
}

// CountSessions counts the sessions.
func (s *State) CountSessions() int { return len(s.sessions) }

// OldestWaiting looks at up to limit resources with names after one. It returns when the waiting claim that came first
// was made, 0 for none, and the name of the last of these resources. more says that there may be others behind it.
func (s *State) OldestWaiting(after string, limit int) (created claim.Time, last string, more bool) {
	seen := 0
	s.contended.Ascend(func(r *row) bool { return r.name < after }, func(r *row) bool {
		if r.name == after {
			return true
		}
		if first := r.waiting()[0].created; created == 0 || first < created {
			created = first
		}
		last = r.name
		seen++
		return seen < limit
	})
	return created, last, seen == limit
}

// Held returns a page of active claims of a type, by id.
func (s *State) Held(t claim.Type, page db.Page) []claim.Claim {
	p := pageOf(page, func(*claim.Claim) {})
	if of := s.holds[t]; of != nil { // holding would make it, while others read
		p.read(&s.lives, []*index.List[index.Ref]{of})
	}
	return p.claims()
}

// Live returns a page of the live claims of all resources, or of one, by id, without UserData, and without a Value that
// is too long for the feed.
func (s *State) Live(resource *string, page db.Page) []claim.Claim {
	p := pageOf(page, func(c *claim.Claim) {
		c.UserData = nil
		if len(c.Value) > db.MaxFeedValue {
			c.Value = ""
		}
	})
	if resource != nil {
		if r := s.known(*resource); r != nil {
			p.add(s.claimsFor(r))
		}
	} else {
		p.read(&s.lives, append(slices.Collect(maps.Values(s.holds)), s.waits))
	}
	return p.claims()
}

// Kept is a live claim at one moment. It takes next to no memory beside the state.
type Kept struct{ of *packed }

// Created returns when the claim was made.
func (k Kept) Created() claim.Time { return k.of.created }

// ID returns the claim's id.
func (k Kept) ID() string { return k.of.id() }

// Claim returns the claim.
func (k Kept) Claim() *claim.Claim { return k.of.claim() }

// Line are the live claims of a resource at one moment.
type Line []*packed

// OfResource returns the live claims of a resource as they are now: what comes later does not change them.
func (s *State) OfResource(resource string) (line Line) {
	if r := s.known(resource); r != nil {
		all := s.claimsFor(r)
		line = make(Line, len(all))
		for i, l := range all {
			line[i] = l.packed
		}
	}
	return line
}

// Scan is like Created's, from the first claim on.
func (l Line) Scan(newest bool, _ *claim.Claim, visit func(*claim.Claim, Kept) bool) {
	slices.SortFunc(l, func(a, b *packed) int {
		if newest {
			a, b = b, a
		}
		return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.id(), b.id()))
	})
	var unpacked claim.Claim
	for _, p := range l {
		if p.unpack(&unpacked); !visit(&unpacked, Kept{p}) {
			return
		}
	}
}

// claimsFor returns all live claims of a row, in no order.
func (s *State) claimsFor(r *row) []*live {
	all := slices.Concat(r.shared(), r.waiting())
	if holder := s.holder(r); holder != nil {
		all = append(all, holder)
	}
	return all
}

// page gathers the claims of a page.
type page struct {
	db.Page
	found []*live
	// hide takes out of each claim what the page does not show.
	hide func(*claim.Claim)
}

// usualPage is as long as pages mostly are.
const usualPage = 1001

func pageOf(p db.Page, hide func(*claim.Claim)) *page {
	if p.Limit == 0 {
		p.Limit = math.MaxInt
	}
	return &page{Page: p, hide: hide}
}

// add adds the claims that the page may need, from many in any order. read takes the first ones of each of several
// indexes.
func (p *page) add(claims []*live) {
	var last string // of a full page; "" before there is one
	for _, l := range claims {
		if id := l.id(); id <= p.After || last != "" && id > last {
			continue
		}
		if p.found = append(p.found, l); len(p.found)/2 >= p.Limit {
			p.cut()
			last = p.found[p.Limit-1].id()
		}
	}
}

// cut leaves the first claims that were found, as many as a page has.
func (p *page) cut() {
	slices.SortFunc(p.found, func(a, b *live) int { return cmp.Compare(a.id(), b.id()) })
	p.found = p.found[:min(p.Limit, len(p.found))]
}

func (p *page) read(lives *index.Slab[live], lists []*index.List[index.Ref]) {
	for _, list := range lists {
		n, budget := 0, db.Budget(p.Bytes)
		p.found = slices.Grow(p.found, min(p.Limit, list.Len(), usualPage))
		var shown claim.Claim
		list.Ascend(func(r index.Ref) bool { return lives.At(r).id() < p.After }, func(r index.Ref) bool {
			l := lives.At(r)
			if l.id() == p.After {
				return true
			}
			p.found = append(p.found, l)
			n++
			l.unpack(&shown)
			p.hide(&shown)
			return n < p.Limit && budget.Take(&shown)
		})
	}
}

// claims returns the page.
func (p *page) claims() []claim.Claim {
	p.cut()
	budget := db.Budget(p.Bytes)
	claims := slices.Grow(p.Into[:0], len(p.found))[:len(p.found)]
	for i, l := range p.found {
		shown := &claims[i]
		l.unpack(shown)
		p.hide(shown)
		if !budget.Take(shown) {
			return claims[:i+1]
		}
	}
	return claims
}

// Created are the live claims of one moment, in the order of lists.
type Created struct{ list *index.List[*packed] }

// Created returns the live claims as they are now: what comes later does not change them. It must be called where the
// state may be changed.
func (s *State) Created() Created { return Created{s.created.Copy()} }

// Scan calls visit for the claims from a place on, nil for the first, the newest first or last, until it returns false. The
// claim that visit gets is another one after it.
func (c Created) Scan(newest bool, from *claim.Claim, visit func(*claim.Claim, Kept) bool) {
	var unpacked claim.Claim
	each := func(p *packed) bool {
		p.unpack(&unpacked)
		return visit(&unpacked, Kept{p})
	}
	switch {
	case from == nil && newest:
		c.list.Descend(nil, each)
	case from == nil:
		c.list.Ascend(nil, each)
	case newest:
		place, _ := pack(nil, from)
		c.list.Descend(func(p *packed) bool { return byCreation(place, p) }, each)
	default:
		place, _ := pack(nil, from)
		c.list.Ascend(func(p *packed) bool { return byCreation(p, place) }, each)
	}
}

// Unused looks at up to limit rows of resources after a name. It returns the rows without live claims that have not
// changed since before, and the name to continue from, "" at the end.
func (s *State) Unused(after string, before claim.Time, limit int) (unused []record.Row, next string) {
	seen := 0
	s.names.Ascend(s.rowsBefore(after), func(ref index.Ref) bool {
		r := s.rowSlab.At(ref)
		if r.name == after {
			return true
		}
		if seen == limit {
			return false
		}
		seen++
		next = r.name
		if r.free() && r.version < uint64(before) {
			unused = append(unused, record.Row{Name: r.name, Version: r.version, Dropped: true})
		}
		return true
	})
	if seen < limit {
		next = ""
	}
	return unused, next
}
