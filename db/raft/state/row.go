package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/locket-service/locket/internal/claim"
)

// row is the row of a resource, with its live claims.
type row struct {
	name    string
	version uint64
	// holder is the claim that holds the resource exclusively, nil for none.
	holder *live
	// lines are nil where nobody shares the resource, or waits for it.
	lines *lines
}

// lines are the claims of a resource beside its exclusive holder.
type lines struct {
	// shared and waiting are in the order in which the claims came.
	shared, waiting line
	// soonest is a moment before which no shared holder falls due.
	soonest claim.Time
	// contended says that the row is among those for which claims wait.
	contended bool
}

// line is a list of claims in the order in which they came. Most come at its end, and leave at its begin.
type line []*live

func (l line) find(enqueued uint64) (int, bool) {
	return slices.BinarySearchFunc(l, enqueued, func(c *live, e uint64) int { return cmp.Compare(c.enqueued(), e) })
}

// add puts a claim into its place.
func (l *line) add(c *live) {
	if n := len(*l); n == 0 || (*l)[n-1].enqueued() < c.enqueued() {
		*l = append(*l, c)
		return
	}
	at, _ := l.find(c.enqueued())
	*l = slices.Insert(*l, at, c)
}

func (l *line) remove(c *live) {
	at, _ := l.find(c.enqueued())
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
		r = &row{name: strings.Clone(name)}
		s.rows[r.name] = r
		s.names.Set(r)
	}
	return r
}

// of returns the row as the rules know it.
func (r *row) of() claim.Row {
	row := claim.Row{Resource: r.name, Version: r.version, Shared: len(r.shared()), Waiting: len(r.waiting())}
	if r.holder != nil {
		row.Holder = r.holder.id()
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
	r := l.row
	if l.status() == claim.Active && l.mode() != claim.Shared {
		r.holder = l
		return
	}
	if r.lines == nil {
		r.lines = &lines{soonest: claim.Forever}
	}
	if l.status() == claim.Waiting {
		r.lines.waiting.add(l)
	} else {
		r.lines.shared.add(l)
		r.lines.soonest = min(r.lines.soonest, l.deadline())
	}
	s.contend(r)
}

func (s *State) leave(l *live) {
	r := l.row
	switch {
	case l.status() == claim.Waiting:
		r.lines.waiting.remove(l)
	case l.mode() == claim.Shared:
		r.lines.shared.remove(l)
	default:
		r.holder = nil
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

// free reports whether the row has no live claims.
func (r *row) free() bool { return r.holder == nil && r.lines == nil }

// sharedDue returns up to limit shared holders that are due at a lease time, in the order of their deadlines. It
// looks at the holders only when one may be due.
func (r *row) sharedDue(now claim.Time, limit int) []*live {
	if r.lines.soonest > now {
		return nil
	}
	var due []*live
	r.lines.soonest = claim.Forever
	for _, l := range r.lines.shared {
		r.lines.soonest = min(r.lines.soonest, l.deadline())
		if l.deadline() <= now {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *live) int { return cmp.Compare(a.deadline(), b.deadline()) })
	return due[:min(limit, len(due))]
}
