package state

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/tidwall/btree"

	"github.com/locket-service/locket/db/raft/record"
	"github.com/locket-service/locket/internal/claim"
)

// restoring is what is gathered of a snapshot for the ordered indexes. They are filled in the end, each in its order: that takes
// a small part of the time that it takes to look for the place of each claim.
type restoring struct {
	created []keyed[packed]
	leases  []keyed[*live]
	limited []keyed[*live]
	status  map[*btree.BTreeG[*live]][]*live // in the order of the snapshot, which is that of ids
}

// keyed is what stands in an index by a moment, and the moment: most comparisons need not look further.
type keyed[T any] struct {
	at claim.Time
	of T
}

func (to *restoring) add(s *State, l *live) {
	to.created = append(to.created, keyed[packed]{l.created(), l.packed})
	index := s.withStatus(l)
	to.status[index] = append(to.status[index], l)
	switch s.deadlines(l) {
	case s.leases:
		to.leases = append(to.leases, keyed[*live]{l.deadline(), l})
	case s.limited:
		to.limited = append(to.limited, keyed[*live]{l.deadline(), l})
	}
}

// Restore makes an empty state that of a snapshot: read calls its argument for each record of it. All ordered indexes, and
// the lines of resources, are made in the end. After an error the state is of no use.
func (s *State) Restore(read func(apply func(*record.Decoded) error) error) error {
	s.restoring = &restoring{status: make(map[*btree.BTreeG[*live]][]*live)}
	if err := read(s.restore); err != nil {
		return err
	}
	gathered := s.restoring
	s.restoring = nil
	var filling sync.WaitGroup
	filling.Go(func() { fillByMoment(s.created, gathered.created, packed.id) })
	filling.Go(func() { fillByMoment(s.leases, gathered.leases, (*live).id) })
	filling.Go(func() { fillByMoment(s.limited, gathered.limited, (*live).id) })
	filling.Go(func() {
		for index, claims := range gathered.status {
			for _, l := range claims {
				index.Load(l)
			}
		}
	})
	filling.Go(s.fillRows)
	filling.Wait()
	return nil
}

// restore adds what a record of a snapshot says: each makes something anew, and changes nothing.
func (s *State) restore(d *record.Decoded) error {
	for i := range d.Claims {
		p := &d.Claims[i]
		if p.Fields&record.Made == 0 {
			return fmt.Errorf("%w: claim %.200q", ErrDiverged, p.Claim.ID)
		}
		if _, err := s.change(false, &p.Claim); err != nil {
			return err
		}
	}
	for _, c := range d.Sessions {
		if err := s.applySession(c); err != nil {
			return err
		}
	}
	for _, r := range d.Rows {
		if r.Dropped {
			return fmt.Errorf("%w: resource %.200q", ErrDiverged, r.Name)
		}
	}
	s.applyRest(d.Header, d.Servers, d.Rows, d.Floor, d.Quarantine)
	return nil
}

// fillByMoment fills an index that is in the order of moments, then of ids.
func fillByMoment[T any](index *btree.BTreeG[T], gathered []keyed[T], id func(T) string) {
	slices.SortFunc(gathered, func(a, b keyed[T]) int {
		if a.at != b.at {
			return cmp.Compare(a.at, b.at)
		}
		return cmp.Compare(id(a.of), id(b.of))
	})
	for _, next := range gathered {
		index.Load(next.of)
	}
}

// fillRows fills the index of names, and sorts the lines of each resource.
func (s *State) fillRows() {
	type named struct {
		name string
		*row
	}
	rows := make([]named, 0, len(s.rows))
	for name, r := range s.rows {
		r.shared().sort()
		r.waiting().sort()
		rows = append(rows, named{name, r})
	}
	slices.SortFunc(rows, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	for _, next := range rows {
		s.names.Load(next.row)
	}
}
