// Package share has limits that identities share.
package share

import "sync"

// Limit bounds how many uses of something there may be at once, such as running calls, watches or sessions. Half of it
// is for the identities that come first. Beyond that, an identity gets one more while it has less than an equal share of
// that half, so no identity can exclude the others. More room is for uses that keep their callers' claims.
type Limit struct {
	limit int
	// shared is the limit for identities with less than their share, and kept the limit for uses that keep something.
	shared, kept int
	lasts        bool

	mu  sync.Mutex
	all int
	of  map[string]int // by identity
}

// NewShort returns a limit for uses that end soon. The last quarter is for uses that keep something.
func NewShort(limit int) *Limit {
	return &Limit{limit: limit, shared: limit * 3 / 4, kept: limit, of: make(map[string]int)}
}

// NewLasting returns a limit for uses that last as long as their callers like. The last quarter is for identities
// with less than their share. Without authentication there are no shares.
func NewLasting(limit int) *Limit {
	return &Limit{limit: limit, shared: limit, kept: limit * 3 / 4, lasts: true, of: make(map[string]int)}
}

// Begin begins a use of an identity, and reports whether there may be one more; End ends it.
func (l *Limit) Begin(identity string, keeps bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all+1 > l.room(identity, keeps) {
		return false
	}
	l.all++
	l.of[identity]++
	return true
}

// room returns the limit for one more use of an identity.
func (l *Limit) room(identity string, keeps bool) int {
	if l.lasts && identity == "" {
		return l.limit
	}
	room, own, identities := (l.limit+1)/2, l.of[identity]+1, len(l.of)
	if own == 1 {
		identities++ // it has no use yet
	}
	share := identities > 1 && own*identities <= room
	if keeps {
		room = max(room, l.kept)
	}
	if share {
		room = max(room, l.shared)
	}
	return room
}

// Add begins a use without a check: it takes the place of another one.
func (l *Limit) Add(identity string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all++
	l.of[identity]++
}

// End ends a use of an identity.
func (l *Limit) End(identity string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[identity]--; l.of[identity] == 0 {
		delete(l.of, identity)
	}
}

// Count returns how many uses there are.
func (l *Limit) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}
