package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/locket-service/locket/db/replica/index"
	"github.com/locket-service/locket/internal/rules/claim"
)

// row is the row of a resource, with its live claims.
type row struct {
	name    string
	version uint64
	// holder is the claim of lives that holds the resource exclusively, 0 for none.
	holder index.Ref
	// lines are nil where nobody shares the resource, or waits for it.
	lines *lines
}

// lines are the claims of a resource beside its exclusive holder.
type lines struct {
	// shared and waiting are in order of arrival.
	shared, waiting line
	// taken is how many units the shared holders take, and units how many there are.
	taken uint64
	units uint32
	// No shared holder falls due before soonest.
	soonest claim.Time
	// contended says that the row is in the list of rows with waiting claims.
	contended bool
}

// line is a list of claims in order of arrival. Most come at its end, and leave at its begin.
type line []*live

func (l line) find(enqueued uint64) (int, bool) {
	return slices.BinarySearchFunc(l, enqueued, func(c *live, e uint64) int { return cmp.Compare(c.enqueued, e) })
}

// add puts a claim into its place.
func (l *line) add(c *live) {
	if n := len(*l); n == 0 || (*l)[n-1].enqueued < c.enqueued {
		*l = append(*l, c)
		return
	}
	at, _ := l.find(c.enqueued)
	*l = slices.Insert(*l, at, c)
}

func (l *line) remove(c *live) {
	at, _ := l.find(c.enqueued)
	if at == 0 {
		(*l)[0] = nil
		*l = (*l)[1:]
	} else {
		*l = slices.Delete(*l, at, at+1)
	}
	if len(*l) == 0 {
		*l = nil
	}
}

// row returns the row of a resource in the rowSlab, and makes one if there is none.
func (s *State) row(name string) index.Ref {
	if r := s.rows.Find(name); r != 0 {
		return r
	}
	ref, r := s.rowSlab.Take()
	r.name = strings.Clone(name)
	s.rows.Put(ref)
	s.names.Set(ref)
	*s.sums.of(name) += r.hash()
	return ref
}

// rowOf returns the row of the resource of a claim.
func (s *State) rowOf(l *live) *row { return s.rowSlab.At(l.row) }

// holder returns the claim that holds a resource exclusively, nil for none.
func (s *State) holder(r *row) *live {
	if r.holder == 0 {
		return nil
	}
	return s.lives.At(r.holder)
}

// known returns the row of a resource, nil if there is none.
func (s *State) known(name string) *row {
	if r := s.rows.Find(name); r != 0 {
		return s.rowSlab.At(r)
	}
	return nil
}

// ruled returns a row as the rules know it.
func (s *State) ruled(r *row) claim.Row {
	row := claim.Row{Resource: r.name, Version: r.version}
	if r.lines != nil {
		row.Shared, row.Waiting, row.Taken, row.Of = len(r.lines.shared), len(r.lines.waiting), r.lines.taken, r.lines.units
	}
	if holder := s.holder(r); holder != nil {
		row.Holder = holder.id()
	}
	return row
}

func (r *row) shared() line {
	if r.lines == nil {
		return nil
	}
	return r.lines.shared
}

func (r *row) waiting() line {
	if r.lines == nil {
		return nil
	}
	return r.lines.waiting
}

// enter notes a live claim in its row, and leave takes it out.
func (s *State) enter(l *live) {
	r := s.rowOf(l)
	if l.status == claim.Active && !l.shares {
		r.holder = l.self
		return
	}
	if r.lines == nil {
		r.lines = &lines{soonest: claim.Forever}
	}
	if l.status == claim.Waiting {
		r.lines.waiting.add(l)
	} else {
		r.lines.shared.add(l)
		u := l.units()
		r.lines.taken, r.lines.units = r.lines.taken+uint64(u.Take), u.Of
		r.lines.soonest = min(r.lines.soonest, l.deadline)
	}
	s.contend(r)
}

func (s *State) leave(l *live) {
	r := s.rowOf(l)
	switch {
	case l.status == claim.Waiting:
		r.lines.waiting.remove(l)
	case l.shares:
		r.lines.shared.remove(l)
		if r.lines.taken -= uint64(l.units().Take); len(r.lines.shared) == 0 {
			r.lines.units = 0
		}
	default:
		r.holder = 0
		return
	}
	if s.contend(r); len(r.lines.shared)+len(r.lines.waiting) == 0 {
		r.lines = nil
	}
}

// contend notes whether claims wait for a resource.
func (s *State) contend(r *row) {
	waits := len(r.lines.waiting) > 0
	switch {
	case waits && !r.lines.contended:
		s.contended.Set(r)
	case !waits && r.lines.contended:
		s.contended.Delete(r)
	}
	r.lines.contended = waits
}

// grow notes a version that a row has had.
func (s *State) grow(r *row, version uint64) {
	if version <= r.version {
		return
	}
	sum := s.sums.of(r.name)
	*sum -= r.hash()
	r.version = version
	*sum += r.hash()
}

// free reports whether the row has no live claims.
func (r *row) free() bool { return r.holder == 0 && r.lines == nil }

// sharedDue returns up to limit shared holders that are due at a lease time, in the order of their deadlines. It
// looks at the holders only when one may be due.
func (r *row) sharedDue(now claim.Time, limit int) []*live {
	if r.lines.soonest > now {
		return nil
	}
	var due []*live
	r.lines.soonest = claim.Forever
	for _, l := range r.lines.shared {
		r.lines.soonest = min(r.lines.soonest, l.deadline)
		if l.deadline <= now {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *live) int { return cmp.Compare(a.deadline, b.deadline) })
	return due[:min(limit, len(due))]
}
