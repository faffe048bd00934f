package state

import (
	"cmp"
	"maps"
	"slices"

	"github.com/locket-service/locket/db/replica/index"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Dump returns the record that makes the state from an empty one: rows by name, claims, sessions and servers by id. Two
// states are equal if their dumps are.
func (s *State) Dump() *record.Record {
	r := &record.Record{Header: record.Header{Lease: s.Lease}, Floor: s.floor, Quarantine: s.Quarantine}
	s.names.Ascend(nil, func(ref index.Ref) bool {
		known := s.rowSlab.At(ref)
		r.Rows = append(r.Rows, record.Row{Name: known.name, Version: known.version})
		return true
	})
	s.created.Ascend(nil, func(p *packed) bool {
		r.Claims = append(r.Claims, claim.Transition{After: p.claim()})
		return true
	})
	slices.SortFunc(r.Claims, func(a, b claim.Transition) int { return cmp.Compare(a.After.ID, b.After.ID) })
	s.ids.Ascend(nil, func(known *session) bool {
		r.Sessions = append(r.Sessions, claim.SessionChange{After: known.Session})
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(s.servers)) {
		r.Servers = append(r.Servers, record.Server{Name: name, Seen: s.servers[name]})
	}
	if s.format > 1 {
		r.Format = s.format
	}
	r.Batches, r.Cuts = s.batches.All(), s.cuts
	return r
}
