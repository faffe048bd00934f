package ordertest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/locket-service/locket/db/replica/order"
)

// Shared is a log in memory that several servers share. It uses neither files nor the network. In a bubble of
// testing/synctest, call New there.
type Shared struct {
	mu      sync.Mutex
	state   state
	history []change      // every one that has not been trimmed
	dropped int           // the number of changes before history
	changed chan struct{} // closed at each change
	restore chan struct{} // closed when an older state is restored
}

// state is everything in the log. Restoring a backup brings it back.
type state struct {
	cluster uint64
	epoch   order.Epoch
	first   uint64 // the index of the first record
	records []record
	servers map[string][]byte
	beats   int // how many there were
}

// change is an event, and how many beats there were by then.
type change struct {
	order.Event
	beats int
}

type record struct {
	epoch uint64
	data  []byte
}

// New returns an empty log.
func New() *Shared {
	return &Shared{
		state:   state{first: 1, servers: map[string][]byte{}},
		changed: make(chan struct{}), restore: make(chan struct{}),
	}
}

// Backup remembers the present state of the log. The returned function takes it back to that state, and ends each Follow.
func (s *Shared) Backup() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.state.clone()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.state = kept.clone()
		s.dropped, s.history = s.dropped+len(s.history), nil
		close(s.restore)
		s.restore = make(chan struct{})
	}
}

func (s *state) clone() state {
	c := *s
	c.records, c.servers = slices.Clone(s.records), maps.Clone(s.servers)
	return c
}

// Records returns the records that the log has, and the index of the first of them.
func (s *Shared) Records() (first uint64, records [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.state.records {
		records = append(records, r.data)
	}
	return s.state.first, records
}

// Epoch returns the current epoch.
func (s *Shared) Epoch() order.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.epoch
}

// The methods below need s.mu.

func (s *Shared) add(e order.Event) {
	s.history = append(s.history, change{e, s.state.beats})
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Shared) append(epoch, index uint64, data []byte) error {
	st := &s.state
	switch {
	case index < st.first:
		return order.ErrTrimmed
	case index <= st.last():
		return s.there(epoch, index, data)
	case epoch != st.epoch.Number:
		return order.ErrDeposed
	case index > st.last()+1:
		return order.ErrBehind
	}
	data = bytes.Clone(data)
	st.records = append(st.records, record{epoch, data})
	s.add(order.Event{Index: index, Data: data})
	return nil
}

// there says whether a record is the one at its index.
func (s *Shared) there(epoch, index uint64, data []byte) error {
	r := s.state.records[index-s.state.first]
	switch {
	case r.epoch == epoch && bytes.Equal(r.data, data):
		return nil
	case epoch != s.state.epoch.Number:
		return order.ErrDeposed
	default:
		return fmt.Errorf("%w: record %d is another one", order.ErrUnavailable, index)
	}
}

func (s *Shared) beat(epoch uint64) error {
	if epoch != s.state.epoch.Number {
		return order.ErrDeposed
	}
	s.state.beats++
	s.add(order.Event{})
	return nil
}

func (s *Shared) raise(after, last uint64, decider []byte, unseen bool) error {
	next := order.Epoch{Number: after + 1, Decider: bytes.Clone(decider)}
	if now := s.state.epoch; now.Number == next.Number && bytes.Equal(now.Decider, decider) {
		return nil
	}
	switch {
	case after != s.state.epoch.Number, last < s.state.last():
		return order.ErrDeposed
	case last > s.state.last():
		return order.ErrBehind
	case unseen && decider != nil:
		return order.ErrDeposed
	}
	s.state.epoch = next
	s.add(order.Event{Epoch: &next})
	return nil
}

// after returns an error unless the log continues behind the record with an index.
func (s *state) after(index uint64) error {
	switch {
	case index+1 < s.first:
		return order.ErrTrimmed
	case index > s.last():
		return order.ErrBehind
	default:
		return nil
	}
}

func (s *state) last() uint64 { return s.first + uint64(len(s.records)) - 1 }

func (s *Shared) trim(upTo uint64) error {
	st := &s.state
	for len(st.records) > 1 && st.first <= upTo {
		st.first, st.records = st.first+1, st.records[1:]
	}
	// A Follow that has not yet received the changes before the first record has lost the log.
	if i := slices.IndexFunc(s.history, func(e change) bool { return e.Index >= st.first }); i > 0 {
		s.history, s.dropped = s.history[i:], s.dropped+i
	}
	return nil
}
