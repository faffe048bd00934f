package state

import (
	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// sums are the sums of the hashes of rows: see record.Sums. They change with each row. The other parts are small enough to be
// hashed when they are asked for.
type sums struct {
	resources [256]record.Hash // by the first byte of the name
	sessions  record.Hash
}

// of returns the sum of the resources with names like one.
func (s *sums) of(name string) *record.Hash {
	if name == "" {
		return &s.resources[0]
	}
	return &s.resources[name[0]]
}

// hash returns the hash of a claim.
func (p *packed) hash() (h record.Hash) {
	h.Text(p.text())
	h.Numbers(uint64(p.created), uint64(p.deadline), p.enqueued, p.token, p.version, uint64(p.ttl), uint64(p.activated), uint64(p.status), uint64(p.kind))
	return h
}

// hash returns the hash of a row.
func (r *row) hash() (h record.Hash) {
	h.Text(r.name)
	h.Numbers(r.version)
	return h
}

// sessionHash returns the hash of a session.
func (s *State) sessionHash(of *claim.Session) (h record.Hash) {
	w := codec.Writer(s.packing[:0])
	w.Session(of)
	s.packing = w.Buffer()
	h.Data(s.packing)
	return h
}

// Sums returns the sums of the state.
func (s *State) Sums() (all record.Sums) {
	var of [record.Parts]record.Hash
	copy(of[:], s.sums.resources[:])
	of[record.PartSessions] = s.sums.sessions
	for name, seen := range s.servers {
		var h record.Hash
		h.Text(name)
		h.Numbers(uint64(seen))
		of[record.PartServers] += h
	}
	for _, b := range s.batches.All() {
		of[record.PartBatches].Numbers(b.Node, b.Seq)
		of[record.PartBatches].Data(b.Outcome)
	}
	for _, c := range s.cuts {
		of[record.PartCuts].Numbers(c.Entry, uint64(c.Finished))
		of[record.PartCuts].Text(c.ID)
	}
	of[record.PartRest].Numbers(uint64(s.Lease), s.floor, uint64(s.Quarantine), s.format)
	for part, sum := range of {
		if sum != 0 {
			all = append(all, record.PartSum{Part: uint64(part), Sum: uint64(sum)})
		}
	}
	return all
}
