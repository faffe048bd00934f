package index

// PartLen is how many things a part has at most.
const PartLen = partLen

// Parts returns how many there are.
func (l *List[T]) Parts() int { return len(l.parts) }
