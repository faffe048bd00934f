// Package index keeps very many things, and finds them, in little memory and with next to no work for the garbage
// collector: a Slab keeps them, a Table finds them by name, and a List keeps them in an order. Instead of pointers they
// use Refs, which take half the memory and are nothing to the collector. None of them is safe for concurrent use;
// several may read at once.
package index

// Ref says which thing of a Slab is meant. 0 is none.
type Ref uint32

const (
	chunkBits = 10
	chunkLen  = 1 << chunkBits
)

// Slab has room for many things, which stay in place until they are given back. It does not shrink: freed room is used
// again. The zero value has none.
type Slab[T any] struct {
	chunks []*[chunkLen]T
	last   Ref // the highest that was ever taken
	free   []Ref
}

// Take returns room for a thing, with the zero value in it.
func (s *Slab[T]) Take() (Ref, *T) {
	if n := len(s.free) - 1; n >= 0 {
		r := s.free[n]
		s.free = s.free[:n]
		return r, s.At(r)
	}
	s.last++
	if int(s.last>>chunkBits) == len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkLen]T))
	}
	return s.last, s.At(s.last)
}

// At returns the thing of a Ref.
func (s *Slab[T]) At(r Ref) *T { return &s.chunks[r>>chunkBits][r%chunkLen] }

// Give takes room back, which nothing refers to any more.
func (s *Slab[T]) Give(r Ref) {
	var zero T
	*s.At(r) = zero
	s.free = append(s.free, r)
}
