package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/index"
)

// Resources looks at up to limit resources with a prefix after a name. It returns the resources with live claims, and
// the name to continue from, "" at the end: see db.Resources.
func (s *State) Resources(prefix, after string, limit int) (live []db.Resource, next string) {
	seen := 0
	s.names.Ascend(s.rowsBefore(max(prefix, after)), func(ref index.Ref) bool {
		r := s.rowSlab.At(ref)
		if !strings.HasPrefix(r.name, prefix) || seen == limit {
			return false
		}
		if r.name == after {
			return true
		}
		seen++
		next = r.name
		if !r.free() {
			live = append(live, s.resource(r))
		}
		return true
	})
	if seen < limit {
		next = ""
	}
	return live, next
}

// rowsBefore tells the rows of the resources whose names come before one.
func (s *State) rowsBefore(name string) func(index.Ref) bool {
	return func(r index.Ref) bool { return s.rowSlab.At(r).name < name }
}

// Contended returns up to limit resources with a prefix and waiting claims, most waiters first: see db.Resources.
func (s *State) Contended(prefix string, after *db.Contention, limit int) (list []db.Resource, err error) {
	var rows []*row
	s.contended.Ascend(func(r *row) bool { return r.name < prefix }, func(r *row) bool {
		if !strings.HasPrefix(r.name, prefix) || len(rows) > db.MaxContended {
			return false
		}
		rows = append(rows, r)
		return true
	})
	if len(rows) > db.MaxContended {
		return nil, db.ErrListTooLong
	}
	slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(len(b.waiting()), len(a.waiting())) })
	for _, r := range rows {
		waiting := len(r.waiting())
		if after != nil && (waiting > after.Waiting || waiting == after.Waiting && r.name <= after.Resource) {
			continue
		}
		if len(list) == limit {
			break
		}
		list = append(list, s.resource(r))
	}
	return list, nil
}

// first returns the claim that has held the resource for longest, nil for none.
func (s *State) first(r *row) *live {
	switch shared := r.shared(); {
	case r.holder != 0:
		return s.holder(r)
	case len(shared) > 0:
		return shared[0]
	default:
		return nil
	}
}

func (s *State) resource(r *row) db.Resource {
	of := db.Resource{Row: s.ruled(r)}
	if first := s.first(r); first != nil {
		of.First = first.bare()
	}
	if waiting := r.waiting(); len(waiting) > 0 {
		of.WaitsSince = waiting[0].created
	}
	return of
}
