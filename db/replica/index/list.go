package index

import (
	"slices"
	"sort"
)

// partLen is how many things a part of a List has at most.
const partLen = 512

// List keeps things in an order. It is divided into parts, which are full where things came in order.
type List[T any] struct {
	before func(a, b T) bool
	parts  []*part[T]
	count  int
	copies uint64 // how many were made
}

type part[T any] struct {
	things []T    // never empty
	copies uint64 // copies made when this part became its own; if there are more by now, they share it
}

// NewList returns an empty list with an order: before reports whether one thing comes before another. Two things are
// the same if neither comes before the other.
func NewList[T any](before func(a, b T) bool) *List[T] { return &List[T]{before: before} }

// Len returns how many things there are.
func (l *List[T]) Len() int { return l.count }

// find returns the place of the first thing that does not come before a place.
func (l *List[T]) find(comesBefore func(T) bool) (in, at int) {
	in = sort.Search(len(l.parts), func(i int) bool {
		things := l.parts[i].things
		return !comesBefore(things[len(things)-1])
	})
	if in == len(l.parts) {
		return in, 0
	}
	things := l.parts[in].things
	return in, sort.Search(len(things), func(i int) bool { return !comesBefore(things[i]) })
}

// search returns where a thing is, or the place for it.
func (l *List[T]) search(thing T) (in, at int, found bool) {
	if last := len(l.parts) - 1; last >= 0 && l.before(l.parts[last].things[len(l.parts[last].things)-1], thing) {
		return last + 1, 0, false // most come in order
	}
	in, at = l.find(func(t T) bool { return l.before(t, thing) })
	return in, at, in < len(l.parts) && !l.before(thing, l.parts[in].things[at])
}

// Set adds a thing, or puts it in the place of the same.
func (l *List[T]) Set(thing T) {
	in, at, found := l.search(thing)
	if found {
		l.own(in).things[at] = thing
		return
	}
	l.count++
	if at == 0 && in > 0 && len(l.parts[in-1].things) < partLen {
		in, at = in-1, len(l.parts[in-1].things)
	}
	if in == len(l.parts) {
		l.parts = append(l.parts, l.part(thing))
		return
	}
	if p := l.own(in); len(p.things) == partLen {
		const half = partLen / 2
		right := l.part(p.things[half:]...)
		clear(p.things[half:])
		p.things = p.things[:half]
		l.parts = slices.Insert(l.parts, in+1, right)
		if at > half {
			in, at = in+1, at-half
		}
	}
	p := l.parts[in]
	p.things = slices.Insert(p.things, at, thing)
}

// Delete takes a thing out, if it is there.
func (l *List[T]) Delete(thing T) {
	in, at, found := l.search(thing)
	if !found {
		return
	}
	l.count--
	p := l.own(in)
	if p.things = slices.Delete(p.things, at, at+1); len(p.things) == 0 {
		l.parts = slices.Delete(l.parts, in, in+1)
		return
	}
	if in > 0 {
		l.join(in - 1)
	}
	if in < len(l.parts) {
		l.join(in)
	}
}

// join makes one part of two that follow each other when they have become small.
func (l *List[T]) join(in int) {
	if in+1 >= len(l.parts) || len(l.parts[in].things)+len(l.parts[in+1].things) > partLen/2 {
		return
	}
	p := l.own(in)
	p.things = append(p.things, l.parts[in+1].things...)
	l.parts = slices.Delete(l.parts, in+1, in+2)
}

// part returns a part of this list alone.
func (l *List[T]) part(things ...T) *part[T] {
	return &part[T]{append(make([]T, 0, partLen), things...), l.copies}
}

// own returns a part that no copy shares.
func (l *List[T]) own(in int) *part[T] {
	p := l.parts[in]
	if p.copies != l.copies {
		p = l.part(p.things...)
		l.parts[in] = p
	}
	return p
}

// Copy returns a copy of the list that later changes do not affect. Nobody may change the copy.
func (l *List[T]) Copy() *List[T] {
	l.copies++
	return &List[T]{before: l.before, parts: slices.Clone(l.parts), count: l.count}
}

// First returns the first thing, and Last the last one. They return the zero value, and false, for an empty list.
func (l *List[T]) First() (first T, there bool) {
	if l.count == 0 {
		return first, false
	}
	return l.parts[0].things[0], true
}

// Last is described with First.
func (l *List[T]) Last() (last T, there bool) {
	if l.count == 0 {
		return last, false
	}
	things := l.parts[len(l.parts)-1].things
	return things[len(things)-1], true
}

// Ascend calls visit for the things in order, without things that come before a place, until it returns false. Without
// comesBefore it begins with the first.
func (l *List[T]) Ascend(comesBefore func(T) bool, visit func(T) bool) {
	in, at := 0, 0
	if comesBefore != nil {
		in, at = l.find(comesBefore)
	}
	for ; in < len(l.parts); in, at = in+1, 0 {
		for _, thing := range l.parts[in].things[at:] {
			if !visit(thing) {
				return
			}
		}
	}
}

// Descend is Ascend the other way round: without things that come after a place, from the last one on.
func (l *List[T]) Descend(comesAfter func(T) bool, visit func(T) bool) {
	in, at := len(l.parts), 0
	if comesAfter != nil {
		in, at = l.find(func(t T) bool { return !comesAfter(t) })
	}
	for ; ; at-- {
		if at == 0 {
			if in--; in < 0 {
				return
			}
			at = len(l.parts[in].things)
		}
		if !visit(l.parts[in].things[at-1]) {
			return
		}
	}
}
