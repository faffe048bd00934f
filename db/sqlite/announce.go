package sqlite

import (
	"context"
	"maps"
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// Announce implements db.Members. There are no other servers, so nothing is written.
func (s *Store) Announce(_ context.Context, m db.Member) error {
	s.members.Lock()
	defer s.members.Unlock()
	now := wallTime()
	m.Seen = now
	s.announced[m.Name] = m
	maps.DeleteFunc(s.announced, func(_ string, m db.Member) bool { return m.Seen < now.Add(-db.MemberAge) })
	return nil
}

// Withdraw implements db.Members.
func (s *Store) Withdraw(_ context.Context, name string) error {
	s.members.Lock()
	defer s.members.Unlock()
	delete(s.announced, name)
	return nil
}

// Members implements db.Members.
func (s *Store) Members(context.Context) (members []db.Member, now claim.Instant, err error) {
	s.members.Lock()
	defer s.members.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.announced)) {
		members = append(members, s.announced[name])
	}
	return members, s.instant(), nil
}
