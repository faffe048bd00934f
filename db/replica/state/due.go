package state

import (
	"strings"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/index"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Due returns the names of up to limit resources with a holder whose lease has run out: see db.Due.
func (s *State) Due(now claim.Time, idle time.Duration, limit int) (names []string) {
	seen := make(map[index.Ref]bool)
	s.leases.Ascend(nil, func(r index.Ref) bool {
		l := s.lives.At(r)
		if l.deadline > now || len(names) == limit {
			return false
		}
		if (len(s.rowOf(l).waiting()) > 0 || l.deadline <= now.Add(-idle)) && !seen[l.row] {
			seen[l.row] = true
			names = append(names, s.rowOf(l).name)
		}
		return true
	})
	return names
}

// Abandoned returns the ids of up to limit claims that wait and have fallen due, the first one first.
func (s *State) Abandoned(now claim.Time, limit int) (ids []string) {
	s.limited.Ascend(nil, func(r index.Ref) bool {
		l := s.lives.At(r)
		if l.deadline > now || len(ids) == limit {
			return false
		}
		ids = append(ids, strings.Clone(l.id()))
		return true
	})
	return ids
}

// NextDue returns when there is something to look at, for the server that is registered under a name: see
// db.Due.
func (s *State) NextDue(now claim.Time, idle time.Duration, registered string) (next claim.Time) {
	for _, deadlines := range []*index.List[index.Ref]{s.leases, s.limited} {
		sooner := func(r index.Ref) bool {
			next = db.Sooner(next, db.LookAt(s.lives.At(r).deadline, now, idle))
			return false
		}
		deadlines.Ascend(nil, sooner)
		deadlines.Ascend(func(r index.Ref) bool { return s.lives.At(r).deadline <= now }, sooner)
	}
	if s.endless > 0 {
		next = db.Sooner(next, claim.Forever)
	}
	if s.ids.Len() == 0 {
		return next
	}
	return s.nextSession(next, registered)
}

// nextSession returns the sooner of a time, 0 for none, and the time when sessions must be looked at.
func (s *State) nextSession(next claim.Time, registered string) claim.Time {
	next = db.Sooner(next, claim.Forever)
	if first, there := s.due.First(); there {
		next = db.Sooner(next, first.Deadline)
	}
	for name, seen := range s.servers {
		if name != registered {
			next = db.Sooner(next, seen.Add(db.ServerTimeout))
		}
	}
	for name := range s.attached {
		if _, known := s.servers[name]; !known {
			next = db.Sooner(next, 1)
		}
	}
	return next
}

// DueSessions returns the ids of up to limit sessions that are due, longest due first.
func (s *State) DueSessions(before claim.Time, limit int) (ids []string) {
	s.due.Ascend(nil, func(l *session) bool {
		if l.Deadline > before || len(ids) == limit {
			return false
		}
		ids = append(ids, l.ID)
		return true
	})
	return ids
}

// Silent returns the servers that are registered, or that sessions are attached to, and that have not been there since
// a time, except one. Unknown servers were never there.
func (s *State) Silent(since claim.Time, except string) (silent map[string]claim.Time) {
	silent = make(map[string]claim.Time)
	for name, seen := range s.servers {
		if name != except && seen <= since {
			silent[name] = seen
		}
	}
	for name := range s.attached {
		if _, known := s.servers[name]; !known {
			silent[name] = 0
		}
	}
	return silent
}

// Detached returns the changes that detach up to limit sessions from a server that was last there at a time.
func (s *State) Detached(server string, seen claim.Time, limit int) (changes []claim.SessionChange) {
	for attached := range s.attached[server] {
		if len(changes) == limit {
			break
		}
		after := *attached.Session
		after.Deadline = max(after.Attached, seen).Add(after.TTL)
		after.Server, after.Attached = "", 0
		after.Version++
		changes = append(changes, claim.SessionChange{Before: attached.Session, After: &after})
	}
	return changes
}

// LongestTTL returns the longest TTL of a live claim or of a session, 0 for none.
func (s *State) LongestTTL() time.Duration {
	longest, _ := s.lengths.Last()
	return longest
}

// Top returns the highest version of a resource.
func (s *State) Top() uint64 {
	top := s.floor
	s.names.Ascend(nil, func(r index.Ref) bool {
		top = max(top, s.rowSlab.At(r).version)
		return true
	})
	return top
}

// Registered reports whether a server is registered, and was not declared gone.
func (s *State) Registered(name string) bool {
	_, known := s.servers[name]
	return known
}
