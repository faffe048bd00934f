package snapshot

import (
	"maps"
	"slices"
)

// section merges the things of one kind in the last snapshot, which come in the order of their names, with the changes since.
type section[T, C any] struct {
	changes map[string]C
	names   []string // of the changes that are not merged yet, in order
	// apply returns a thing after a change, nil if it has ended. before is nil if the last snapshot does not have the thing.
	apply func(before *T, name string, change C) (after *T, err error)
	put   func(*T) error
}

func newSection[T, C any](apply func(*T, string, C) (*T, error), put func(*T) error) section[T, C] {
	return section[T, C]{changes: make(map[string]C), apply: apply, put: put}
}

// begin is called when all changes are there.
func (s *section[T, C]) begin() { s.names = slices.Sorted(maps.Keys(s.changes)) }

// merge puts a thing of the last snapshot, with its change if it has one, and before it the new things whose names come before.
func (s *section[T, C]) merge(name string, thing *T) error {
	for len(s.names) > 0 && s.names[0] < name {
		if err := s.next(nil); err != nil {
			return err
		}
	}
	if len(s.names) > 0 && s.names[0] == name {
		return s.next(thing)
	}
	return s.put(thing)
}

// end puts the new things that are left.
func (s *section[T, C]) end() error {
	for len(s.names) > 0 {
		if err := s.next(nil); err != nil {
			return err
		}
	}
	return nil
}

// next merges the first change.
func (s *section[T, C]) next(before *T) error {
	name := s.names[0]
	s.names = s.names[1:]
	after, err := s.apply(before, name, s.changes[name])
	if err != nil || after == nil {
		return err
	}
	return s.put(after)
}
