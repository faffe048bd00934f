package state

// bag is a set of claims in no order, each of which knows its place.
type bag []*live

// add puts a claim into the bag, and notes its place there.
func (b *bag) add(l *live, place *int) {
	*place = len(*b)
	*b = append(*b, l)
}

// remove takes the claim at a place out; moved notes the new place of the claim that takes it.
func (b *bag) remove(place int, moved func(l *live) *int) {
	last := len(*b) - 1
	l := (*b)[last]
	(*b)[place] = l
	*moved(l) = place
	(*b)[last] = nil
	*b = (*b)[:last]
}

func inSession(l *live) *int { return &l.inSession }
func inOwner(l *live) *int   { return &l.inOwner }
