package state

import (
	"maps"
	"slices"

	"github.com/locket-service/locket/db/raft/record"
	"github.com/locket-service/locket/internal/claim"
)

// Dump returns the record that makes the state from an empty one: rows by name, claims, sessions and servers by id. Two
// states are equal if their dumps are.
func (s *State) Dump() *record.Record {
	r := &record.Record{Header: record.Header{Lease: s.Lease}, Floor: s.floor, Quarantine: s.Quarantine}
	s.names.Scan(func(known *row) bool {
		r.Rows = append(r.Rows, record.Row{Name: known.name, Version: known.version})
		return true
	})
	for _, id := range slices.Sorted(maps.Keys(s.claims)) {
		r.Claims = append(r.Claims, claim.Transition{After: s.claims[id].claim()})
	}
	s.ids.Scan(func(known *session) bool {
		r.Sessions = append(r.Sessions, claim.SessionChange{After: known.Session})
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(s.servers)) {
		r.Servers = append(r.Servers, record.Server{Name: name, Seen: s.servers[name]})
	}
	for _, node := range slices.Sorted(maps.Keys(s.batches)) {
		r.Batches = append(r.Batches, s.batches[node])
	}
	return r
}
