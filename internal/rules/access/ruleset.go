package access

import (
	"iter"
	"slices"
)

// ruleSet is a set of rules. A nil set is empty.
type ruleSet struct {
	list []*Rule // in the order of the file
	// index has the rules of a long list by subject, nil for a short list.
	index map[subject][]*Rule
	// lengths are the lengths of the identity prefixes in the index.
	lengths []int
}

// subject is the identity, prefix, group or everybody that a rule is about.
type subject struct {
	kind subjectKind
	name string // of the identity or the group, or the prefix
}

type subjectKind uint8

const (
	everybody subjectKind = iota
	identity
	identityPrefix
	group
)

// longList is up to how many rules a decision looks at each of them; a longer list is indexed.
const longList = 16

func subjectOf(r *Rule) subject {
	switch {
	case r.Identity != nil:
		return subject{identity, *r.Identity}
	case r.IdentityPrefix != nil:
		return subject{identityPrefix, *r.IdentityPrefix}
	case r.Group != nil:
		return subject{group, *r.Group}
	}
	return subject{}
}

// indexIfLong makes the index, so that a decision does not look at every rule of a long list.
func (s *ruleSet) indexIfLong() {
	if len(s.list) <= longList {
		return
	}
	s.index = make(map[subject][]*Rule)
	for _, r := range s.list {
		of := subjectOf(r)
		if length := len(of.name); of.kind == identityPrefix && !slices.Contains(s.lengths, length) {
			s.lengths = append(s.lengths, length)
		}
		s.index[of] = append(s.index[of], r)
	}
}

// deciding returns the rules that say something about a right of an identity, in any order.
func (s *ruleSet) deciding(id Identity, right Right) iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		each := func(rules []*Rule) bool {
			for _, r := range rules {
				if (r.May|r.MayNot)&right != 0 && r.About(id) && !yield(r) {
					return false
				}
			}
			return true
		}
		switch {
		case s == nil:
			return
		case s.index == nil:
			each(s.list)
			return
		case !each(s.index[subject{}]) || !each(s.index[subject{identity, id.Name}]):
			return
		}
		for _, length := range s.lengths {
			if length <= len(id.Name) && !each(s.index[subject{identityPrefix, id.Name[:length]}]) {
				return
			}
		}
		for i, name := range id.Groups {
			rules := s.index[subject{group, name}]
			if len(rules) > 0 && !slices.Contains(id.Groups[:i], name) && !each(rules) {
				return
			}
		}
	}
}

// first returns the rule that decides: a denial if there is one, otherwise a permission. Of several, the first in the
// file wins.
func (s *ruleSet) first(id Identity, right Right) (found *Rule) {
	for r := range s.deciding(id, right) {
		if found == nil || r.MayNot != 0 && found.MayNot == 0 || (r.MayNot != 0) == (found.MayNot != 0) && r.Line < found.Line {
			found = r
		}
	}
	return found
}
