package state

// bag is a set of claims in no order; each knows its place.
type bag []*live

// add puts a claim into the bag, and notes its place there.
func (b *bag) add(l *live) {
	l.inBag = uint32(len(*b))
	*b = append(*b, l)
}

// remove takes a claim out.
func (b *bag) remove(l *live) {
	last := len(*b) - 1
	moved := (*b)[last]
	(*b)[l.inBag] = moved
	moved.inBag = l.inBag
	(*b)[last] = nil
	*b = (*b)[:last]
}
