// Package state is the live state of the embedded engine, in memory: resources, live claims, waiters in order,
// sessions, and the indexes that find them. It decides nothing: a transaction loads from it what the rules of
// package claim need, and a record says what has changed. It does no I/O, and is not safe for concurrent use: whoever
// owns it keeps readers and changes apart.
package state

import (
	"cmp"
	"time"

	"github.com/tidwall/btree"

	"github.com/locket-service/locket/db/raft/record"
	"github.com/locket-service/locket/internal/claim"
)

// State is the live state after some records.
type State struct {
	// Lease is lease time at the last record.
	Lease claim.Time
	// Quarantine is the lease time before which nobody is granted anything, 0 for none.
	Quarantine claim.Time

	floor     uint64
	rows      map[string]*row
	names     *btree.BTreeG[*row] // by name
	contended *btree.BTreeG[*row] // by name, those for which claims wait
	claims    map[string]*live
	created   *btree.BTreeG[packed]               // all live claims, in the order of lists
	waits     *btree.BTreeG[*live]                // all that wait, by id
	holds     map[claim.Type]*btree.BTreeG[*live] // all that are active, by id
	leases    *btree.BTreeG[*live]                // active claims by deadline, without those that have none
	limited   *btree.BTreeG[*live]                // waiting claims by deadline, those that have one
	ttls      *btree.Map[time.Duration, int]      // how many leases, limits of waiting, and sessions have each TTL
	endless   int                                 // active claims without a deadline
	owners    map[string]bag                      // the waiting claims of each owner, without those of sessions
	counts    map[string]claim.Count              // of the live claims of each identity
	sessions  map[string]*session                 //
	ids       *btree.BTreeG[*session]             // by id
	due       *btree.BTreeG[*session]             // by deadline, those that have one
	attached  map[string]map[*session]struct{}    // by server
	servers   map[string]claim.Time               // that are registered, and the time of the last beat of each
	batches   map[uint64]record.Batch             // the last one of each node that does not lead
}

// live is the place of one live claim. The claim itself never changes: a change puts another one here.
type live struct {
	packed
	row *row
	// session is what the claim is bound to, nil for none.
	session *session
	// inBag is where the claim stands in the bag of its session, or of its owner if it has none.
	inBag int
}

// session is one session, and its live claims.
type session struct {
	*claim.Session
	claims bag
}

func byName(a, b *row) bool { return a.name < b.name }

func byID(a, b *live) bool { return a.id() < b.id() }

func byDeadline(a, b *live) bool {
	if one, other := a.deadline(), b.deadline(); one != other {
		return one < other
	}
	return a.id() < b.id()
}

func byCreation(a, b packed) bool {
	if one, other := a.created(), b.created(); one != other {
		return one < other
	}
	return a.id() < b.id()
}

func tree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// New returns an empty state.
func New() *State {
	return &State{
		rows: make(map[string]*row), names: tree(byName), contended: tree(byName),
		claims: make(map[string]*live), created: tree(byCreation), waits: tree(byID), holds: make(map[claim.Type]*btree.BTreeG[*live]),
		leases: tree(byDeadline), limited: tree(byDeadline), ttls: new(btree.Map[time.Duration, int]), owners: make(map[string]bag), counts: make(map[string]claim.Count),
		sessions: make(map[string]*session), ids: tree(func(a, b *session) bool { return a.ID < b.ID }),
		due: tree(func(a, b *session) bool {
			return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), cmp.Compare(a.ID, b.ID)) < 0
		}),
		attached: make(map[string]map[*session]struct{}), servers: make(map[string]claim.Time),
		batches: make(map[uint64]record.Batch),
	}
}

// holding returns the active claims of a type, by id.
func (s *State) holding(t claim.Type) *btree.BTreeG[*live] {
	of := s.holds[t]
	if of == nil {
		of = tree(byID)
		s.holds[t] = of
	}
	return of
}
