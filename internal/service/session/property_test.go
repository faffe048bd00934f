package session_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/session"
)

// blocker blocks each caller of pass while it is shut.
type blocker struct {
	mu   sync.Mutex
	shut chan struct{} // nil: it is open
}

func (b *blocker) set(shut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case shut && b.shut == nil:
		b.shut = make(chan struct{})
	case !shut && b.shut != nil:
		close(b.shut)
		b.shut = nil
	}
}

func (b *blocker) pass(ctx context.Context) {
	b.mu.Lock()
	shut := b.shut
	b.mu.Unlock()
	if shut != nil {
		select {
		case <-shut:
		case <-ctx.Done():
		}
	}
}

// truth is the committed state, by the rules of package claim.
type truth struct {
	mu      sync.Mutex
	states  map[change]claim.Claim
	changes []claim.Transition
	live    map[string]claim.Claim
}

// change is a change of a resource.
type change struct {
	resource string
	version  uint64
}

func (h *truth) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states, h.changes, h.live = make(map[change]claim.Claim), nil, make(map[string]claim.Claim)
}

func (h *truth) add(changes []claim.Transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, changes...)
	for _, t := range changes {
		c := *t.After
		h.states[change{c.Resource, c.Version}] = c
		delete(h.live, c.ID)
		if c.Status.Live() {
			h.live[c.ID] = c
		}
	}
}

// of returns the changes of a session's claims.
func (h *truth) of(session string) (changes []claim.Transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.changes {
		if t.After.Session == session {
			changes = append(changes, t)
		}
	}
	return changes
}

// lives returns the live claims, in the order of their ids.
func (h *truth) lives() (live []claim.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.live {
		live = append(live, c)
	}
	slices.SortFunc(live, func(a, b claim.Claim) int { return cmp.Compare(a.ID, b.ID) })
	return live
}

func (h *truth) state(s *session.Standing) (claim.Claim, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, there := h.states[change{s.Resource, s.Version}]
	return c, there
}

// saves records what a transaction changes.
type saves struct {
	db.Tx
	queues *claim.Queues
}

func (s *saves) Save(queues *claim.Queues) error {
	s.queues = queues
	return s.Tx.Save(queues)
}

// scene is two servers on one store, and a third one that only commits.
type scene struct {
	*committertest.World
	servers []*server
	truth   truth
	commits blocker // of the two servers
	reads   blocker // of the claims of sessions; a read is stale when the blocker opens

	mu      sync.Mutex
	outcome outcome // of the next commit
}

type outcome int

const (
	known outcome = iota
	unknownDone
	unknownUndone
)

func newScene(t *testing.T) *scene {
	sc := &scene{World: committertest.New(t, 0)}
	sc.Store.Set(func(s *committertest.Store) { s.OnTransact = sc.transact })
	f := &feed{}
	for _, name := range []string{"a", "b"} {
		sc.servers = append(sc.servers, startServerOn(t, sc.World, slowStore{sc.Store, &sc.reads}, f, name))
	}
	return sc
}

func (sc *scene) setOutcome(to outcome) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.outcome = to
}

// slowStore delays reads of the claims of sessions.
type slowStore struct {
	*committertest.Store
	reads *blocker
}

func (s slowStore) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	claims, err := s.Store.Live(ctx, of, page)
	s.reads.pass(ctx)
	return claims, errors.Join(err, ctx.Err())
}

func (sc *scene) transact(ctx context.Context, fn func(db.Tx) error) error {
	sc.commits.pass(ctx)
	sc.mu.Lock()
	how := sc.outcome
	sc.outcome = known
	sc.mu.Unlock()
	if how == unknownUndone {
		return db.ErrOutcomeUnknown
	}
	err := sc.commit(ctx, fn)
	if how == unknownDone && err == nil {
		return db.ErrOutcomeUnknown
	}
	return err
}

// commit runs a transaction, and records what it has changed.
func (sc *scene) commit(ctx context.Context, fn func(db.Tx) error) error {
	saved := &saves{}
	err := sc.Store.Update(ctx, func(tx db.Tx) error {
		saved.Tx, saved.queues = tx, nil
		return fn(saved)
	})
	if err == nil && saved.queues != nil {
		sc.truth.add(saved.queues.Transitions())
	}
	return err
}

// elsewhere runs a command at the third server. No server hears of it.
func (sc *scene) elsewhere(cmd claim.Command) {
	_ = sc.commit(context.Background(), func(tx db.Tx) error {
		_, err := db.Execute(tx, []claim.Command{cmd}, func(queues *claim.Queues) { _, _ = queues.Do(cmd) })
		return err
	})
}

// hearing checks the events of a session.
type hearing struct {
	*rapid.T
	sc       *scene
	id       string
	at       int // the server's index
	stream   *session.Attached
	sequence uint64
	opened   uint64
	told     map[string]session.Standing
	asked    map[uint64]session.Command // commands without an answer
	missed   int                        // number of changes of its claims that the feed need not deliver
}

// open opens the session at a server. It opens the blockers of commits and reads for that.
func (h *hearing) open(at int) {
	h.sequence++
	h.opened = h.sequence
	if h.stream != nil {
		h.hear()
		defer h.stream.Detach()
	}
	h.sc.setOutcome(known)
	h.missed = len(h.sc.truth.of(h.id))
	opened := make(chan error)
	go func() {
		stream, err := h.sc.servers[at].sessions.Open(context.Background(), session.Open{
			ID: h.id, Secret: "s", TTL: time.Minute, Sequence: h.sequence,
		})
		h.stream, h.at = stream, at
		opened <- err
	}()
	synctest.Wait()
	h.sc.commits.set(false)
	synctest.Wait()
	h.sc.reads.set(false)
	if err := <-opened; err != nil {
		h.Fatalf("open: %v", err)
	}
	h.told, h.asked = make(map[string]session.Standing), make(map[uint64]session.Command)
}

func (h *hearing) do(cmd func(sequence uint64) session.Command) {
	h.sequence++
	if h.stream.Room(context.Background()) {
		h.asked[h.sequence] = cmd(h.sequence)
		h.stream.Do(h.asked[h.sequence])
	}
}

// hear checks the events that the session got since the last call.
func (h *hearing) hear() {
	synctest.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for events := h.stream.Next(ctx); len(events) > 0; events = h.stream.Next(ctx) {
		for i := range events {
			h.event(&events[i])
		}
	}
	if err := h.stream.Err(); err != nil {
		h.Fatalf("the session has ended: %v", err)
	}
}

func (h *hearing) event(e *session.Event) {
	s := e.Standing
	h.Logf("heard %d: %+v %v", e.Sequence, s, e.Err)
	opening := e.Sequence == h.opened
	if e.Sequence != 0 && !opening {
		if h.asked[e.Sequence] == nil {
			h.Fatalf("command %d was answered twice", e.Sequence)
		}
		delete(h.asked, e.Sequence)
	}
	if s == nil {
		return
	}
	before := h.told[s.Resource]
	h.told[s.Resource] = *s
	if s.Claim != "" {
		c, there := h.sc.truth.state(s)
		if !there || c.ID != s.Claim || c.Session != h.id || c.Status != s.Status || s.Current == session.Held && c.Token != s.Token {
			h.Fatalf("got event %+v, but the committed claim was %+v", s, c)
		}
	}
	switch changed := s.Current != before.Current || s.Token != before.Token; {
	case opening:
	case s.Previous != before.Current:
		h.Fatalf("told %+v after %+v", s, before)
	case changed && s.Version <= before.Version:
		h.Fatalf("told the older %+v after %+v", s, before)
	case changed && s.Current != session.None && before.Current != session.None && s.Claim != before.Claim:
		h.Fatalf("told another claim %+v after %+v", s, before)
	case !changed && s.Current != session.None && s.Version != before.Version:
		h.Fatalf("told as a change although nothing has changed: %+v after %+v", s, before)
	case !changed && e.Sequence == 0:
		h.Fatalf("told %+v once more", s)
	case e.Sequence == 0 && before.Current == session.None, e.Sequence == 0 && s.Reason == "" && h.unlocks(s):
		h.Fatalf("the answer should have told %+v", s)
	}
}

// unlocks reports whether the end of a claim can be the effect of a command about its resource alone.
func (h *hearing) unlocks(s *session.Standing) (unlocks bool) {
	for _, cmd := range h.asked {
		switch cmd := cmd.(type) {
		case session.Unlock:
			unlocks = unlocks || cmd.Resource == s.Resource && s.Current == session.None
		case session.UnlockAll:
			return false
		}
	}
	return unlocks
}

// settle ends everything that is running, delivers all changes, and compares the session's events with its committed
// claims.
func (h *hearing) settle() {
	h.sc.commits.set(false)
	h.sc.reads.set(false)
	time.Sleep(time.Second)
	for _, t := range rapid.Permutation(h.sc.truth.of(h.id)[h.missed:]).Draw(h.T, "the rest") {
		h.stream.Changed(t)
	}
	time.Sleep(time.Second)
	h.hear()
	for sequence := range h.asked {
		h.Errorf("command %d was not answered", sequence)
	}
	has := make(map[string]session.Holding)
	for _, c := range h.sc.truth.lives() {
		if c.Session != h.id {
			continue
		}
		if has[c.Resource] != session.None {
			h.Errorf("it has two claims of %s", c.Resource)
		}
		has[c.Resource] = map[claim.Status]session.Holding{claim.Waiting: session.Waiting, claim.Active: session.Held}[c.Status]
		if told := h.told[c.Resource]; told.Claim != c.ID || told.Version != c.Version {
			h.Errorf("it has %+v, and was told %+v", c, told)
		}
	}
	for resource, told := range h.told {
		if told.Current != has[resource] {
			h.Errorf("it was told %+v, and has %d", told, has[resource])
		}
	}
}

// TestPropertyEvents: the reported versions of a resource rise, and each change is reported once. The previous
// holding in an event is the current one of the event before. The final state obeys the rules. This holds for any
// order of changes from this server, from the feed and from reads, late and repeated, while commands run, commits
// have unknown outcomes, and the session is opened again and moves.
func TestPropertyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newScene(t)
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) { // a bubble has no deadline
			sc.truth.reset()
			h := &hearing{T: t, sc: sc, id: ids.NewClaim()}
			resources := []string{"k " + h.id, "l " + h.id}
			resource := func() string { return resources[rapid.IntRange(0, 4).Draw(t, "resource")/4] }
			mode := func() claim.Units {
				return rapid.SampledFrom([]claim.Units{claim.Exclusive, claim.Shared}).Draw(t, "mode")
			}
			other := func() claim.Command {
				live := sc.truth.lives()
				if len(live) > 0 && rapid.IntRange(0, 2).Draw(t, "end") > 0 {
					return claim.End{ID: rapid.SampledFrom(live).Draw(t, "claim").ID, Reason: "ended by another"}
				}
				return claim.Create{ID: ids.NewClaim(), Resource: resource(), Owner: "other", Units: mode(), TTL: time.Hour}
			}
			h.open(0)
			defer func() { h.stream.Detach() }()
			defer func() { sc.commits.set(false); sc.reads.set(false) }()
			actions := map[string]func(*rapid.T){
				"lock": func(t *rapid.T) {
					lock := session.Lock{Resource: resource(), Units: mode(), Try: rapid.Bool().Draw(t, "try")}
					h.do(func(sequence uint64) session.Command { lock.Sequence = sequence; return lock })
				},
				"unlock": func(t *rapid.T) {
					unlock := session.Unlock{Resource: resource()}
					if rapid.Bool().Draw(t, "this hold") {
						unlock.Token = h.told[unlock.Resource].Token
					}
					h.do(func(sequence uint64) session.Command { unlock.Sequence = sequence; return unlock })
				},
				"unlock all": func(*rapid.T) {
					h.do(func(sequence uint64) session.Command { return session.UnlockAll{Sequence: sequence} })
				},
				"another": func(t *rapid.T) {
					if rapid.Bool().Draw(t, "elsewhere") {
						sc.elsewhere(other())
					} else {
						_ = sc.servers[h.at].queues.Submit(context.Background(), other(), inbox.New(1000, nil), func(committer.Result, error) {})
					}
				},
				"from the feed": func(t *rapid.T) {
					changes := sc.truth.of(h.id)
					for range rapid.IntRange(0, len(changes)).Draw(t, "changes") {
						h.stream.Changed(rapid.SampledFrom(changes).Draw(t, "change"))
					}
				},
				"missed": func(*rapid.T) {
					h.missed = len(sc.truth.of(h.id))
					h.stream.Missed()
				},
				"hold up": func(t *rapid.T) {
					rapid.SampledFrom([]*blocker{&sc.commits, &sc.reads}).Draw(t, "what").set(true)
				},
				"go on": func(t *rapid.T) {
					rapid.SampledFrom([]*blocker{&sc.commits, &sc.reads}).Draw(t, "what").set(false)
				},
				"fault": func(t *rapid.T) {
					sc.setOutcome(outcome(rapid.IntRange(0, 2).Draw(t, "outcome")))
				},
				"time": func(*rapid.T) { time.Sleep(150 * time.Millisecond) },
				"open": func(t *rapid.T) { h.open(rapid.IntRange(0, 1).Draw(t, "server")) },
				"":     func(*rapid.T) { h.hear() },
			}
			for range 3 { // three times as many as usual
				t.Repeat(actions)
			}
			h.settle()
			if t.Failed() {
				t.Logf("the truth: %s", fmt.Sprint(sc.truth.lives()))
			}
		})
	})
}

// TestChangeDuringRead: a change of a claim that only a running read will find is not lost.
func TestChangeDuringRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newScene(t)
		sc.truth.reset()
		time.Sleep(3 * time.Second) // the feed has been read
		a := open(t, sc.servers[0].sessions, "a")
		heard(t, a)
		sc.elsewhere(claim.Create{ID: "other", Resource: "k", TTL: time.Hour})
		row, _, err := sc.Store.Session(t.Context(), "a")
		committertest.Check(t, err)
		sc.elsewhere(claim.Create{ID: "mine", Resource: "k", Session: "a", Server: row.Server})
		sc.reads.set(true)
		a.Missed()
		synctest.Wait()
		sc.elsewhere(claim.End{ID: "other"})
		changes := sc.truth.of("a")
		a.Changed(changes[len(changes)-1]) // the grant
		sc.reads.set(false)
		synctest.Wait()
		expect(t, heard(t, a), "k: 0 to 1 (waiting, ); k: 1 to 2 (active, )")
	})
}
