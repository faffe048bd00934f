package state

import (
	"strings"
	"time"

	"github.com/locket-service/locket/db/replica/index"
	"github.com/locket-service/locket/internal/rules/claim"
)

// add puts a claim into all indexes.
func (s *State) add(l *live) {
	s.created.Set(l.packed)
	s.withStatus(l).Set(l.self)
	if deadlines := s.deadlines(l); deadlines != nil {
		deadlines.Set(l.self)
	}
	s.enter(l)
	s.note(l)
}

// note counts a claim, and adds it to its session, or its owner.
func (s *State) note(l *live) {
	if s.deadlines(l) != nil {
		s.countTTL(l.limit(), 1)
	} else if l.status == claim.Active {
		s.endless++
	}
	owner, identity, session := l.parties()
	if session != "" {
		l.session = s.sessionOf(session)
		l.session.claims.add(l)
	} else if l.status == claim.Waiting && owner != "" {
		owned := s.owners[owner]
		owned.add(l)
		s.owners[strings.Clone(owner)] = owned
	}
	s.count(identity, l.status, 1)
}

// remove takes a claim out of all indexes. It must not have changed since it was added.
func (s *State) remove(l *live) {
	s.created.Delete(l.packed)
	s.withStatus(l).Delete(l.self)
	switch deadlines := s.deadlines(l); {
	case deadlines != nil:
		deadlines.Delete(l.self)
		s.countTTL(l.limit(), -1)
	case l.status == claim.Active:
		s.endless--
	}
	s.leave(l)
	owner, identity, session := l.parties()
	if session != "" {
		l.session.claims.remove(l)
		s.forget(session, l.session)
		l.session = nil
	} else if l.status == claim.Waiting && owner != "" {
		owned := s.owners[owner]
		owned.remove(l)
		if len(owned) > 0 {
			s.owners[strings.Clone(owner)] = owned
		} else {
			delete(s.owners, owner)
		}
	}
	s.count(identity, l.status, -1)
}

// withStatus returns the claims with the status, and where they are active the type, of a claim.
func (s *State) withStatus(l *live) *index.List[index.Ref] {
	if l.status == claim.Waiting {
		return s.waits
	}
	return s.holding(l.kind)
}

// deadlines returns the index of deadlines that a claim is in, nil for none.
func (s *State) deadlines(l *live) *index.List[index.Ref] {
	switch {
	case l.status == claim.Active && l.deadline != claim.Forever:
		return s.leases
	case l.status == claim.Waiting && l.deadline != 0:
		return s.limited
	default:
		return nil
	}
}

// limit returns after how much lease time without a request a claim ends that has a deadline.
func (l *live) limit() time.Duration {
	if l.status == claim.Waiting {
		return l.claim().WaitTTL
	}
	return l.ttl
}

func (s *State) countTTL(ttl time.Duration, n int) {
	before := s.ttls[ttl]
	s.ttls[ttl] = before + n
	switch {
	case before == 0:
		s.lengths.Set(ttl)
	case before+n == 0:
		delete(s.ttls, ttl)
		s.lengths.Delete(ttl)
	}
}

// ShortestTTL returns the shortest one of all leases, waiting claims and sessions, 0 if none of them ends by itself.
func (s *State) ShortestTTL() time.Duration {
	shortest, _ := s.lengths.First()
	return shortest
}

// count adds a claim to the count of its identity, or takes it away.
func (s *State) count(identity string, status claim.Status, n int) {
	if identity == "" {
		return
	}
	c := s.counts[identity]
	if status == claim.Active {
		c.Active += n
	} else {
		c.Waiting += n
	}
	if c == (claim.Count{}) {
		delete(s.counts, identity)
	} else {
		s.counts[strings.Clone(identity)] = c
	}
}
