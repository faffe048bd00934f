package state

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// restoring gathers the claims of a snapshot. What finds them is made in the end, when it is known how many there are, and ordered indexes
// are filled in their order: that takes a small part of the time that it takes to look for the place of each claim.
type restoring struct {
	*State
	gathered []*live // in the order of the snapshot: by id
}

// Restore fills an empty state from a snapshot: read calls its argument for each record, which is not used after the
// call. After an error the state is useless.
func (s *State) Restore(read func(apply func(*record.Decoded) error) error) error {
	r := &restoring{State: s}
	if err := read(r.gather); err != nil {
		return err
	}
	var filling sync.WaitGroup
	filling.Go(r.fillResources)
	filling.Go(r.fillDeadlines)
	filling.Go(r.fillIDs)
	filling.Wait()
	if s.claims.Len() != len(r.gathered) {
		return fmt.Errorf("%w: two claims have the same id", ErrDiverged)
	}
	return nil
}

// gather adds a record of a snapshot: it only makes things, and changes nothing.
func (r *restoring) gather(d *record.Decoded) error {
	for i := range d.Claims {
		p := &d.Claims[i]
		if p.Fields&codec.Made == 0 || !p.Claim.Status.Live() {
			return fmt.Errorf("%w: claim %.200q", ErrDiverged, p.Claim.ID)
		}
		l := r.take(&p.Claim)
		r.gathered = append(r.gathered, l)
		r.note(l)
	}
	for _, c := range d.Sessions {
		if err := r.applySession(c); err != nil {
			return err
		}
	}
	for _, known := range d.Rows {
		if known.Dropped || r.rows.Find(known.Name) != 0 {
			return fmt.Errorf("%w: resource %.200q", ErrDiverged, known.Name)
		}
		r.grow(r.rowSlab.At(r.row(known.Name)), known.Version)
	}
	if err := r.applyFormat(d.Format); err != nil {
		return err
	}
	r.applyRest(d.Header, d.Servers, nil, d.Floor, d.Quarantine)
	r.applyCuts(d.Cuts)
	return r.applyBatches(d.Batches)
}

// fillResources fills the index of lists, and gives each resource its claims, mostly in order of arrival.
func (r *restoring) fillResources() {
	for _, next := range r.sorted(func(l *live) (claim.Time, bool) { return l.created, true }) {
		r.created.Set(next.packed)
		next.row = r.row(next.resource())
		r.grow(r.rowOf(next.live), next.version)
		*r.sums.of(next.resource()) += next.hash()
		r.enter(next.live)
	}
}

func (r *restoring) fillDeadlines() {
	for _, next := range r.sorted(func(l *live) (claim.Time, bool) { return l.deadline, r.deadlines(l) != nil }) {
		r.deadlines(next.live).Set(next.self)
	}
}

func (r *restoring) fillIDs() {
	for _, l := range r.gathered {
		r.claims.Put(l.self)
		r.withStatus(l).Set(l.self)
	}
}

// timed is a claim by a moment: most comparisons need not look further.
type timed struct {
	at claim.Time
	*live
}

// sorted returns the claims that have a moment, by moment, then by id.
func (r *restoring) sorted(moment func(*live) (at claim.Time, has bool)) []timed {
	list := make([]timed, 0, len(r.gathered))
	for _, l := range r.gathered {
		if at, has := moment(l); has {
			list = append(list, timed{at, l})
		}
	}
	slices.SortFunc(list, func(a, b timed) int {
		if a.at != b.at {
			return cmp.Compare(a.at, b.at)
		}
		return cmp.Compare(a.id(), b.id())
	})
	return list
}
