package claim_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Random commands at random times: after each of them the queue matches the model, and the rules hold.
func TestPropertyQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, drawn{t})
		actions := map[string]func(*rapid.T){}
		for name, command := range makers {
			actions[name] = func(*rapid.T) { m.tick(); m.step(command(m.world)) }
		}
		t.Repeat(actions)
	})
}

// machine is a completely loaded queue, beside its model.
type machine struct {
	*world
	t      rapid.TB
	queues *claim.Queues
	queue  *claim.Queue
}

func newMachine(t rapid.TB, c chooser) *machine {
	q := claim.NewQueue(claim.Row{Resource: "printer"}, 0, nil)
	return &machine{world: newWorld(c), t: t, queues: only(q), queue: q}
}

func (m *machine) step(cmd claim.Command) {
	m.t.Helper()
	version, before := m.queue.Version, m.claims()
	got, err := carryOut(m.queues, cmd, m.now)
	want, wantErr := m.model.do(cmd, m.now)
	after := m.claims()

	checkAnswer(m.t, cmd, got, err, want, wantErr)
	checkSame(m.t, after, m.model.claims)
	checkState(m.t, m.queue.Row, after)
	checkStep(m.t, version, before, after, cmd)
	if moved := m.queue.Version != version; moved == slices.Equal(before, after) {
		m.t.Fatalf("the version moved: %t; from %+v to %+v", moved, before, after)
	}
	checkBound(m.t, after, m.queues.Session)
	for _, id := range sessionIDs {
		m.model.checkSession(m.t, id, m.queues.Session(id))
	}
	if m.queue.Row != m.model.row() {
		m.t.Fatalf("the row is %+v, that of the model %+v", m.queue.Row, m.model.row())
	}
}

// claims returns every claim of the queue in order of arrival. The queue began empty and so made them all.
func (m *machine) claims() []entry {
	m.t.Helper()
	changes := m.queues.Changes()
	entries := make([]entry, 0, len(changes))
	for i, change := range changes {
		if i > 0 && change.After.Version <= changes[i-1].After.Version {
			m.t.Fatalf("the versions do not rise: %+v after %+v", change.After, changes[i-1].After)
		}
		entries = append(entries, record(*change.After))
	}
	sortQueue(entries)
	return entries
}

// sortQueue sorts claims by order of arrival.
func sortQueue(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.Enqueued, b.Enqueued) })
}
