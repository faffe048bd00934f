package state

import (
	"time"

	"github.com/tidwall/btree"

	"github.com/locket-service/locket/internal/claim"
)

// add puts a claim into all indexes, in which it is not.
func (s *State) add(l *live) {
	s.created.Set(l.Claim)
	s.withStatus(l).Set(l)
	switch deadlines := s.deadlines(l); {
	case deadlines != nil:
		deadlines.Set(l)
		s.countTTL(l.limit(), 1)
	case l.Status == claim.Active:
		s.endless++
	}
	l.row.enter(l, s.restoring)
	s.contend(l.row)
	if l.Session != "" {
		l.session = s.sessionOf(l.Session)
		l.session.claims.add(l, &l.inSession)
	} else if l.Status == claim.Waiting && l.Owner != "" {
		owned := s.owners[l.Owner]
		owned.add(l, &l.inOwner)
		s.owners[l.Owner] = owned
	}
	s.count(l, 1)
}

// remove takes a claim out of all indexes. It is as it was when it was added.
func (s *State) remove(l *live) {
	s.created.Delete(l.Claim)
	s.withStatus(l).Delete(l)
	switch deadlines := s.deadlines(l); {
	case deadlines != nil:
		deadlines.Delete(l)
		s.countTTL(l.limit(), -1)
	case l.Status == claim.Active:
		s.endless--
	}
	l.row.leave(l)
	s.contend(l.row)
	if l.Session != "" {
		l.session.claims.remove(l.inSession, inSession)
		s.forget(l.Session, l.session)
	} else if l.Status == claim.Waiting && l.Owner != "" {
		owned := s.owners[l.Owner]
		owned.remove(l.inOwner, inOwner)
		if len(owned) > 0 {
			s.owners[l.Owner] = owned
		} else {
			delete(s.owners, l.Owner)
		}
	}
	s.count(l, -1)
}

// withStatus returns the claims with the status, and where they are active the type, of a claim.
func (s *State) withStatus(l *live) *btree.BTreeG[*live] {
	if l.Status == claim.Waiting {
		return s.waits
	}
	return s.holding(l.Type)
}

// deadlines returns the index of deadlines that a claim is in, nil for none.
func (s *State) deadlines(l *live) *btree.BTreeG[*live] {
	switch {
	case l.Status == claim.Active && l.Deadline != claim.Forever:
		return s.leases
	case l.Status == claim.Waiting && l.Deadline != 0:
		return s.limited
	default:
		return nil
	}
}

// limit returns after how much lease time without a request a claim ends that has a deadline.
func (l *live) limit() time.Duration {
	if l.Status == claim.Waiting {
		return l.WaitTTL
	}
	return l.TTL
}

func (s *State) countTTL(ttl time.Duration, n int) {
	known, _ := s.ttls.Get(ttl)
	if known += n; known == 0 {
		s.ttls.Delete(ttl)
	} else {
		s.ttls.Set(ttl, known)
	}
}

// ShortestTTL returns the shortest one of all leases, waiting claims and sessions, 0 if none of them ends by itself.
func (s *State) ShortestTTL() time.Duration {
	shortest, _, _ := s.ttls.Min()
	return shortest
}

// count adds a claim to the count of its identity, or takes it away.
func (s *State) count(l *live, n int) {
	if l.Identity == "" {
		return
	}
	c := s.counts[l.Identity]
	if l.Status == claim.Active {
		c.Active += n
	} else {
		c.Waiting += n
	}
	if c == (claim.Count{}) {
		delete(s.counts, l.Identity)
	} else {
		s.counts[l.Identity] = c
	}
}

// contend notes whether claims wait for a resource.
func (s *State) contend(r *row) {
	switch waits := r.Waiting > 0; {
	case waits && !r.contended:
		s.contended.Set(r)
	case !waits && r.contended:
		s.contended.Delete(r)
	}
	r.contended = r.Waiting > 0
}
