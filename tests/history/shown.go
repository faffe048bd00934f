package history

// shown is a list of the versions that answers have shown, the last one first. The rules
// count each resource's versions from 1, while a server follows its database's clock, and
// makes versions that nobody hears of. So only the order is the same: the list rises
// in both.
type shown struct {
	counted uint64 // by the rules
	as      uint64 // in the answers
	before  *shown
}

// note returns the list with one more, and whether it still rises. A list is shared: what
// is there is not changed.
func (l *shown) note(counted, as uint64) (*shown, bool) {
	switch {
	case l == nil || counted > l.counted:
		return &shown{counted, as, l}, l == nil || as > l.as
	case counted == l.counted:
		return l, as == l.as
	case as >= l.as:
		return l, false
	}
	before, ok := l.before.note(counted, as)
	if !ok || before == l.before {
		return l, ok
	}
	return &shown{l.counted, l.as, before}, true
}

// find returns the version of the rules that was shown as another, or noToken.
func (l *shown) find(as uint64) uint64 {
	for ; l != nil && l.as >= as; l = l.before {
		if l.as == as {
			return l.counted
		}
	}
	return noToken
}

func (l *shown) equal(other *shown) bool {
	for ; l != other; l, other = l.before, other.before {
		if l == nil || other == nil || l.counted != other.counted || l.as != other.as {
			return false
		}
	}
	return true
}
