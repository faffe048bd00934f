package state

import (
	"cmp"
	"slices"

	"github.com/locket-service/locket/internal/claim"
)

// row is the row of a resource, with its live claims.
type row struct {
	claim.Row
	holder *live
	// shared and waiting are in the order in which the claims came.
	shared, waiting line
	// contended says that the row is among those for which claims wait.
	contended bool
	// soonest is a moment before which no shared holder falls due.
	soonest claim.Time
}

// line is a list of claims in the order in which they came. Most come at its end, and leave at its begin.
type line []*live

func (l line) find(enqueued uint64) (int, bool) {
	return slices.BinarySearchFunc(l, enqueued, func(c *live, e uint64) int { return cmp.Compare(c.Enqueued, e) })
}

// add puts a claim into its place, or at the end of a line that is sorted later.
func (l *line) add(c *live, unsorted bool) {
	if n := len(*l); n == 0 || unsorted || (*l)[n-1].Enqueued < c.Enqueued {
		*l = append(*l, c)
		return
	}
	at, _ := l.find(c.Enqueued)
	*l = slices.Insert(*l, at, c)
}

func (l *line) remove(c *live) {
	at, _ := l.find(c.Enqueued)
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

// row returns the row of a resource, and makes one if there is none.
func (s *State) row(name string) *row {
	r := s.rows[name]
	if r == nil {
		r = &row{Row: claim.Row{Resource: name}, soonest: claim.Forever}
		s.rows[name] = r
		s.names.Set(r)
	}
	return r
}

func (l line) sort() {
	slices.SortFunc(l, func(a, b *live) int { return cmp.Compare(a.Enqueued, b.Enqueued) })
}

// enter notes a live claim in its row, and leave takes it out.
func (r *row) enter(l *live, unsorted bool) {
	switch {
	case l.Status == claim.Waiting:
		r.waiting.add(l, unsorted)
	case l.Mode == claim.Shared:
		r.shared.add(l, unsorted)
		r.soonest = min(r.soonest, l.Deadline)
	default:
		r.holder, r.Holder = l, l.ID
	}
	r.count()
}

func (r *row) leave(l *live) {
	switch {
	case l.Status == claim.Waiting:
		r.waiting.remove(l)
	case l.Mode == claim.Shared:
		r.shared.remove(l)
	default:
		r.holder, r.Holder = nil, ""
	}
	r.count()
}

func (r *row) count() { r.Shared, r.Waiting = len(r.shared), len(r.waiting) }

// free reports whether the row has no live claims.
func (r *row) free() bool { return r.Holder == "" && r.Shared == 0 && r.Waiting == 0 }

// sharedDue returns up to limit shared holders that are due at a lease time, in the order of their deadlines. It
// looks at the holders only when one may be due.
func (r *row) sharedDue(now claim.Time, limit int) []*live {
	if r.soonest > now {
		return nil
	}
	var due []*live
	r.soonest = claim.Forever
	for _, l := range r.shared {
		r.soonest = min(r.soonest, l.Deadline)
		if l.Deadline <= now {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *live) int { return cmp.Compare(a.Deadline, b.Deadline) })
	return due[:min(limit, len(due))]
}
