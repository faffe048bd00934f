package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Dump returns the sums of the state as a text. Two states are equal if their sums are.
func (s *Store) Dump() []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return fmt.Append(nil, s.state.Sums())
}

// LastBatch is the number of the last batch of a server, 0 for none.
func (s *Store) LastBatch(node uint64) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	last, _ := s.state.LastBatch(record.Origin{Node: node})
	return last.Seq
}

// Snapshot makes a snapshot now.
func (s *Store) Snapshot() error { return s.onTurn(context.Background(), s.makeSnapshot) }

// OnFind has a function called before each read of a claim in the history.
func (s *Store) OnFind(before func(id string)) { s.history.OnFind = before }

// Late reports whether commits wait for the history.
func (s *Store) Late() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.pending.late.IsZero()
}

// WriteHistory writes to the history what has ended.
func (s *Store) WriteHistory() error { return s.writeHistory() }

// Kept returns how many claims are kept ahead for commands.
func (s *Store) Kept() int {
	s.ahead.mu.Lock()
	defer s.ahead.mu.Unlock()
	return len(s.ahead.names)
}

// LogBytes returns how large the log is.
func (s *Store) LogBytes() int { return s.log.Bytes() }

// Pending has the claims on their way to the history.
type Pending struct{ pending }

// NewPending returns one that keeps some bytes at most.
func NewPending(most int) *Pending { return &Pending{newPending(0, most, func(*claim.Claim) {})} }

// Add adds a claim that has ended.
func (p *Pending) Add(entry uint64, c *claim.Claim) { p.add(entry, c) }

// Done notes that all up to an entry was written, with a gap.
func (p *Pending) Done(entry uint64, gap *history.Gap) { p.done(entry, gap) }

// Ended returns the kept claims, and the gap.
func (p *Pending) Ended() ([]history.Ended, *history.Gap) { return p.ended, p.gap }

// Adopt makes a copy of a folder an original.
func Adopt(t testing.TB, path string) {
	t.Helper()
	f, err := openFolder(path, true, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if err := f.beginRun(); err != nil {
		t.Fatal(err)
	}
}

// AdoptMember makes a copy of a folder an original of a server of a cluster.
func AdoptMember(t testing.TB, path string) {
	t.Helper()
	Adopt(t, path)
	f, err := openFolder(path, true, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if err := f.note(stateCluster); err != nil {
		t.Fatal(err)
	}
}

// NewMember makes the folder of a server of a cluster that has nothing yet.
func NewMember(t testing.TB, path string, log uint64) {
	t.Helper()
	f, err := lockFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	f.cluster = true
	if err = f.restart(stateNew); err == nil {
		f.log = log
		var h *history.History
		if h, err = history.Open(f.file(historyName), log, true); err == nil {
			err = errors.Join(h.Close(), f.ready())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// WithSum returns the content of a file of a folder.
func WithSum(text []byte) []byte { return []byte(withSum(string(text))) }

// LogOf returns the id of the log of a folder.
func LogOf(path string) (uint64, error) {
	f := &folder{path: path}
	err := f.readNode()
	return f.log, err
}

// Forget declares a server gone.
func (s *Store) Forget(ctx context.Context, name string) error {
	return s.write(ctx, func(d decision) (*record.Record, error) {
		return &record.Record{Header: record.Header{Wall: d.now.Wall}, Servers: []record.Server{{Name: name, Gone: true}}}, nil
	})
}

// Damage applies a record to the state of this server alone.
func (s *Store) Damage(r *record.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.state.Apply(r)
	return err
}
