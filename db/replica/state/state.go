// Package state is the live state of the embedded engine, in memory: resources, live claims, waiters in order,
// sessions, and the indexes that find them. It decides nothing: a transaction loads queues from it for the rules of
// package claim, and a record has the changes. It does no I/O, and is not safe for concurrent use: whoever
// owns it keeps readers and changes apart.
package state

import (
	"cmp"
	"time"

	"github.com/locket-service/locket/db/replica/index"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// State is the live state after some records.
type State struct {
	// Lease is lease time at the last record.
	Lease claim.Time
	// Quarantine is the lease time before the first grant, 0 for none.
	Quarantine claim.Time

	// Known is the highest format that is applied.
	Known uint64

	format    uint64
	floor     uint64
	rowSlab   index.Slab[row]
	rows      *index.Table           // of rowSlab, by name
	names     *index.List[index.Ref] // of rowSlab, by name
	contended *index.List[*row]      // rows with waiting claims, by name
	lives     index.Slab[live]
	claims    *index.Table                          // of lives, as those below: by id
	waits     *index.List[index.Ref]                // all that wait, by id
	holds     map[claim.Type]*index.List[index.Ref] // all that are active, by id
	leases    *index.List[index.Ref]                // active claims with a deadline, by deadline
	limited   *index.List[index.Ref]                // waiting claims with a deadline, by deadline
	created   *index.List[*packed]                  // all live claims, in the order of lists
	ttls      map[time.Duration]int                 // how many leases, limits of waiting, and sessions have each TTL
	lengths   *index.List[time.Duration]            // the keys of ttls, in order
	endless   int                                   // active claims without a deadline
	owners    map[string]bag                        // the waiting claims of each owner, except claims of sessions
	counts    map[string]claim.Count                // of the live claims of each identity
	sessions  map[string]*session                   //
	ids       *index.List[*session]                 // by id
	due       *index.List[*session]                 // sessions with a deadline, by deadline
	attached  map[string]map[*session]struct{}      // by server
	servers   map[string]claim.Time                 // that are registered, and the time of the last beat of each
	batches   record.Batches
	cuts      record.Cuts
	sums      sums
	packing   []byte // a buffer of pack
}

// live is the place of one live claim. The claim itself never changes: a change puts another one here.
type live struct {
	*packed
	// session is the session that the claim is bound to, nil for none.
	session *session
	row     index.Ref // of rowSlab
	// inBag is the claim's place in the bag of its session, or of its owner if it has none.
	inBag uint32
	self  index.Ref // of lives
}

// session is one session, and its live claims.
type session struct {
	*claim.Session
	claims bag
}

func byName(a, b *row) bool { return a.name < b.name }

func (s *State) byID(a, b index.Ref) bool { return s.lives.At(a).id() < s.lives.At(b).id() }

func (s *State) byDeadline(a, b index.Ref) bool {
	one, other := s.lives.At(a), s.lives.At(b)
	if one.deadline != other.deadline {
		return one.deadline < other.deadline
	}
	return one.id() < other.id()
}

func byCreation(a, b *packed) bool {
	if one, other := a.created, b.created; one != other {
		return one < other
	}
	return a.id() < b.id()
}

// New returns an empty state.
func New() *State {
	s := &State{
		Known: record.Format, format: 1,
		contended: index.NewList(byName), created: index.NewList(byCreation), holds: make(map[claim.Type]*index.List[index.Ref]),
		ttls: make(map[time.Duration]int), lengths: index.NewList(cmp.Less[time.Duration]), owners: make(map[string]bag), counts: make(map[string]claim.Count),
		sessions: make(map[string]*session), ids: index.NewList(func(a, b *session) bool { return a.ID < b.ID }),
		due: index.NewList(func(a, b *session) bool {
			return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), cmp.Compare(a.ID, b.ID)) < 0
		}),
		attached: make(map[string]map[*session]struct{}), servers: make(map[string]claim.Time),
	}
	s.rows = index.NewTable(func(r index.Ref) string { return s.rowSlab.At(r).name })
	s.names = index.NewList(func(a, b index.Ref) bool { return byName(s.rowSlab.At(a), s.rowSlab.At(b)) })
	s.claims = index.NewTable(func(r index.Ref) string { return s.lives.At(r).id() })
	s.waits, s.leases, s.limited = index.NewList(s.byID), index.NewList(s.byDeadline), index.NewList(s.byDeadline)
	return s
}

// live returns the live claim with an id, nil if there is none.
func (s *State) live(id string) *live {
	if r := s.claims.Find(id); r != 0 {
		return s.lives.At(r)
	}
	return nil
}

// take returns the place for a claim that is new.
func (s *State) take(c *claim.Claim) *live {
	r, l := s.lives.Take()
	*l = live{self: r}
	l.packed, s.packing = pack(s.packing, c)
	return l
}

// holding returns the active claims of a type, by id.
func (s *State) holding(t claim.Type) *index.List[index.Ref] {
	of := s.holds[t]
	if of == nil {
		of = index.NewList(s.byID)
		s.holds[t] = of
	}
	return of
}
