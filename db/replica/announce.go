package replica

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// announced are the servers that have announced themselves. There is this one alone, so nothing is written.
type announced struct {
	mu      sync.Mutex
	members map[string]db.Member
}

// Announce implements db.Members.
func (s *Store) Announce(ctx context.Context, m db.Member, leaves bool) error {
	if s.cluster != nil {
		return s.cluster.announce(ctx, m, leaves)
	}
	a := &s.announced
	a.mu.Lock()
	defer a.mu.Unlock()
	now := s.clock.wallTime()
	m.Seen = now
	if a.members == nil {
		a.members = make(map[string]db.Member)
	}
	a.members[m.Name] = m
	maps.DeleteFunc(a.members, func(name string, known db.Member) bool {
		return leaves && name == m.Name || known.Seen < now.Add(-db.MemberAge)
	})
	return nil
}

// Members implements db.Members.
func (s *Store) Members(ctx context.Context) (members []db.Member, now claim.Instant, err error) {
	if s.cluster != nil {
		members, err = s.cluster.members(ctx)
		return members, s.clock.instant(), err
	}
	s.announced.mu.Lock()
	defer s.announced.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.announced.members)) {
		members = append(members, s.announced.members[name])
	}
	return members, s.clock.instant(), nil
}
