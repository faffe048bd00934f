package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// Resources returns those with live claims of up to limit resources after a name whose names begin with a prefix, and
// the name at which to go on, "" at the end: see db.Resources.
func (s *State) Resources(prefix, after string, limit int) (live []db.Resource, next string) {
	seen := 0
	s.names.Ascend(&row{Row: claim.Row{Resource: max(prefix, after)}}, func(r *row) bool {
		if !strings.HasPrefix(r.Resource, prefix) || seen == limit {
			return false
		}
		if r.Resource == after {
			return true
		}
		seen++
		next = r.Resource
		if !r.free() {
			live = append(live, r.resource())
		}
		return true
	})
	if seen < limit {
		next = ""
	}
	return live, next
}

// Contended returns up to limit of the resources with a prefix for which claims wait, those for which most wait first:
// see db.Resources.
func (s *State) Contended(prefix string, after *db.Contention, limit int) (list []db.Resource, err error) {
	var rows []*row
	s.contended.Ascend(&row{Row: claim.Row{Resource: prefix}}, func(r *row) bool {
		if !strings.HasPrefix(r.Resource, prefix) || len(rows) > db.MaxContended {
			return false
		}
		rows = append(rows, r)
		return true
	})
	if len(rows) > db.MaxContended {
		return nil, db.ErrListTooLong
	}
	slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(b.Waiting, a.Waiting) })
	for _, r := range rows {
		if after != nil && (r.Waiting > after.Waiting || r.Waiting == after.Waiting && r.Resource <= after.Resource) {
			continue
		}
		if len(list) == limit {
			break
		}
		list = append(list, r.resource())
	}
	return list, nil
}

func (r *row) resource() db.Resource {
	of := db.Resource{Row: r.Row}
	switch {
	case r.holder != nil:
		of.First = bare(r.holder.Claim)
	case len(r.shared) > 0:
		of.First = bare(r.shared[0].Claim)
	}
	if len(r.waiting) > 0 {
		of.WaitsSince = r.waiting[0].Created
	}
	return of
}
