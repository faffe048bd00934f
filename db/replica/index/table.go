package index

import "hash/maphash"

// Table finds things by name. It stores hashes, not names. On a hash match it calls name to compare.
type Table struct {
	name   func(Ref) string
	seed   maphash.Seed
	shards [1 << shardBits]shard
	count  int
}

// shardBits is the number of bits of a hash that choose the shard. Each shard grows by itself, so that nobody waits
// long.
const shardBits = 10

// shard has its things in the order of their hashes, mostly each near the place where its hash would be if all places were
// in use evenly: what stands between the two is in use.
type shard struct {
	slots []slot
	count int
}

// slot is 32 bits of the hash of a thing, and its Ref. 0 is a free one.
type slot uint64

func (s slot) hash() uint32 { return uint32(s >> 32) }
func (s slot) ref() Ref     { return Ref(s) }

// NewTable returns an empty table of things that have a name.
func NewTable(name func(Ref) string) *Table { return &Table{name: name, seed: maphash.MakeSeed()} }

// Len returns how many things there are.
func (t *Table) Len() int { return t.count }

// Find returns the thing with a name, 0 if there is none.
func (t *Table) Find(name string) Ref {
	s, hash := t.shard(name)
	if at, found := s.find(t, hash, name); found {
		return s.slots[at].ref()
	}
	return 0
}

// Put adds a thing, unless there is one with its name. It reports whether it has.
func (t *Table) Put(r Ref) bool {
	name := t.name(r)
	s, hash := t.shard(name)
	if 5*(s.count+1) > 4*len(s.slots) { // a quarter more
		s.grow(len(s.slots) + len(s.slots)/4 + 4)
	}
	at, found := s.find(t, hash, name)
	if found {
		return false
	}
	s.slots[at] = slot(hash)<<32 | slot(r)
	s.count++
	t.count++
	return true
}

// Delete takes out the thing with a name, which must still have that name, if it is there.
func (t *Table) Delete(name string) {
	s, hash := t.shard(name)
	at, found := s.find(t, hash, name)
	if !found {
		return
	}
	s.close(at)
	s.count--
	t.count--
	if len(s.slots) > 16 && 3*s.count < len(s.slots) {
		s.grow(2 * s.count)
	}
}

func (t *Table) shard(name string) (*shard, uint32) {
	hash := maphash.String(t.seed, name)
	return &t.shards[hash>>(64-shardBits)], uint32(hash)
}

// home is the place where something with a hash stands if it is free.
func (s *shard) home(hash uint32) int { return int(uint64(hash) * uint64(len(s.slots)) >> 32) }

// find returns where a thing is, or the place for it.
func (s *shard) find(t *Table, hash uint32, name string) (at int, found bool) {
	if len(s.slots) == 0 {
		return 0, false
	}
	for at = s.home(hash); s.slots[at] != 0; at = s.after(at) {
		if s.slots[at].hash() == hash && t.name(s.slots[at].ref()) == name {
			return at, true
		}
	}
	return at, false
}

func (s *shard) after(at int) int {
	if at++; at < len(s.slots) {
		return at
	}
	return 0
}

// close frees a place, and moves up the entries that are behind it only because it was in use.
func (s *shard) close(gap int) {
	for at := s.after(gap); s.slots[at] != 0; at = s.after(at) {
		home := s.home(s.slots[at].hash())
		if s.distance(home, at) >= s.distance(gap, at) {
			s.slots[gap] = s.slots[at]
			gap = at
		}
	}
	s.slots[gap] = 0
}

// distance is how many places there are from one on to another.
func (s *shard) distance(from, to int) int {
	if to < from {
		to += len(s.slots)
	}
	return to - from
}

// grow gives the shard another number of places.
func (s *shard) grow(places int) {
	before := s.slots
	s.slots = make([]slot, places)
	for _, moved := range before {
		if moved == 0 {
			continue
		}
		at := s.home(moved.hash())
		for s.slots[at] != 0 {
			at = s.after(at)
		}
		s.slots[at] = moved
	}
}
