package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer"
	"github.com/locket-service/locket/internal/committer/committertest"
	"github.com/locket-service/locket/internal/deadlock"
	"github.com/locket-service/locket/internal/inbox"
	"github.com/locket-service/locket/internal/session"
)

// check is a session.Deadlocks that only examines claims that wait already.
type check func(context.Context, *committer.Result) error

func (check) Look(context.Context, *claim.WouldWaitError) error { return nil }

func (c check) Check(ctx context.Context, result *committer.Result) error { return c(ctx, result) }

// openChecked opens a session with a session.Deadlocks. It holds a resource of its own: others may wait for it. What it has
// heard has been read.
func openChecked(t *testing.T, m *session.Manager, id string, looks session.Deadlocks) *session.Attached {
	t.Helper()
	a, err := m.Open(t.Context(), session.Open{ID: id, Secret: "s", TTL: time.Minute, Sequence: 1, Deadlocks: looks})
	committertest.Check(t, err)
	t.Cleanup(a.Detach)
	do(t, a, session.Lock{Sequence: 2, Resource: id + "'s own"})
	return a
}

// TestGrantDuringCheck: a grant or an end of a claim during the check for deadlocks is told after the answer to its
// Lock.
func TestGrantDuringCheck(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		checked := make(chan struct{})
		b := openChecked(t, m, "b", check(func(context.Context, *committer.Result) error {
			<-checked
			return nil
		}))
		lock(t, a, "k")
		synctest.Wait()
		lock(t, b, "k")
		synctest.Wait()
		a.Next(t.Context())
		a.Room(t.Context())
		a.Do(session.Unlock{Sequence: 3, Resource: "k"})
		synctest.Wait()
		close(checked)
		synctest.Wait()
		events := b.Next(t.Context())
		if got := tell(events); got != "k: 0 to 1 (waiting, ); k: 1 to 2 (active, )" || events[0].Sequence != 2 {
			t.Errorf("b heard %s; %+v", got, events)
		}
	})
}

// TestCheckOutlivesTheStream: the check of a waiting claim completes also when its stream breaks: the claim may close a
// deadlock, and a resumed session keeps it without another check.
func TestCheckOutlivesTheStream(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		b := open(t, m, "b")
		do(t, b, session.Lock{Sequence: 2, Resource: "k"})
		broken, checked := make(chan struct{}), make(chan error)
		a := openChecked(t, m, "a", check(func(ctx context.Context, _ *committer.Result) error {
			<-broken
			checked <- ctx.Err()
			return nil
		}))
		do(t, a, session.Lock{Sequence: 2, Resource: "k"})
		a.End(session.ErrDetached)
		synctest.Wait()
		close(broken)
		committertest.Check(t, <-checked)
	})
}

// looking does something when it has looked at a claim that is not made yet.
type looking struct {
	session.Deadlocks
	looked func()
}

func (l looking) Look(ctx context.Context, would *claim.WouldWaitError) error {
	defer l.looked()
	return l.Deadlocks.Look(ctx, would)
}

// TestCheckBehindTheStream: the stream of a session breaks while its claim is made, which a search has passed. Another one of the deadlock was made
// between the two, when there was none yet. The claim is examined all the same.
func TestCheckBehindTheStream(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		detector := deadlock.NewDetector(w.Store, w.Do, w.Log)
		b := openChecked(t, m, "b", detector)
		goOn := func() {}
		a := openChecked(t, m, "a", looking{detector, func() {
			lock(t, b, "a's own")
			expect(t, tell(b.Next(t.Context())), "a's own: 0 to 1 (waiting, )")
			goOn = w.Store.Hold()
		}})
		do(t, a, session.Lock{Sequence: 3, Resource: "b's own"})
		a.End(session.ErrDetached)
		goOn()
		time.Sleep(5 * time.Second) // it waits for a withdrawal of the other one first
		expect(t, heard(t, open(t, m, "a")), "a's own: 2 to 2 (active, )")
	})
}

// TestCheckOfOlderClaim: the server of a session fails when it has made a claim, and before it has examined that. The Lock that is sent again over
// another stream is refused; one that allows deadlocks, or only tries, leaves the claim where it is.
func TestCheckOfOlderClaim(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		detector := deadlock.NewDetector(w.Store, w.Do, w.Log)
		a, b := openChecked(t, m, "a", detector), openChecked(t, m, "b", detector)
		do(t, b, session.Lock{Sequence: 3, Resource: "a's own"})
		time.Sleep(time.Second)
		made(t, w, "1", "b's own")
		a.End(session.ErrDetached)
		a = openChecked(t, m, "a", detector)
		for _, kept := range []session.Lock{{AllowDeadlock: true}, {Try: true}} {
			kept.Sequence, kept.Resource = 3, "b's own"
			expect(t, do(t, a, kept), "b's own: 1 to 1 (waiting, )")
		}
		lock(t, a, "b's own")
		synctest.Wait()
		events := a.Next(t.Context())
		expect(t, tell(events), "b's own: 1 to 0 (withdrawn, "+deadlock.Reason+")")
		if refused := new(deadlock.Error); len(events) != 2 || !errors.As(events[1].Err, &refused) {
			t.Errorf("heard %+v", events)
		}
	})
}

// TestDeadlockEndedElsewhere: a Lock that is refused because of a deadlock gets only that answer, also if another
// server has withdrawn its claim and this server learns of that later.
func TestDeadlockEndedElsewhere(t *testing.T) {
	refused := errors.New("a deadlock")
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		lock(t, a, "k")
		synctest.Wait()
		var withdrawn string
		b := openChecked(t, m, "b", check(func(_ context.Context, result *committer.Result) error {
			if withdrawn != "" {
				return nil
			}
			withdrawn = result.Claim.ID
			stop := w.Hub.Follow("b", inbox.New(1000, nil), nobody{}) // changes of b's claims do not arrive here
			defer stop()
			w.Must(t, claim.Withdraw{ID: withdrawn, Reason: "a deadlock"})
			return refused
		}))
		lock(t, b, "k")
		synctest.Wait()
		if events := b.Next(t.Context()); len(events) != 1 || !errors.Is(events[0].Err, refused) || events[0].Sequence != 2 {
			t.Errorf("b heard %+v", events)
		}
		b.Missed()
		synctest.Wait()
		lock(t, b, "k") // its answer is the next event
		synctest.Wait()
		if events := b.Next(t.Context()); tell(events) != "k: 0 to 1 (waiting, )" || len(events) != 1 || events[0].Standing.Claim == withdrawn {
			t.Errorf("b heard %s; %+v", tell(events), events)
		}
	})
}

// refusing is a session.Deadlocks that refuses the next claims that would wait.
type refusing struct {
	check
	next []error
}

func (r *refusing) Look(context.Context, *claim.WouldWaitError) (err error) {
	err, r.next = r.next[0], r.next[1:]
	return err
}

// TestRefusedBeforeItIsMade: a Lock that would close a deadlock makes no claim, and its room is free again. A Lock that
// need not wait is not checked.
func TestRefusedBeforeItIsMade(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		lock(t, a, "k")
		synctest.Wait()
		refused := errors.New("a deadlock")
		looks := &refusing{next: []error{refused, nil}, check: func(context.Context, *committer.Result) error { return nil }}
		b := openChecked(t, m, "b", looks)
		lock(t, b, "k")
		synctest.Wait()
		if events := b.Next(t.Context()); len(events) != 1 || !errors.Is(events[0].Err, refused) {
			t.Errorf("b heard %+v", events)
		}
		if counts, err := w.Store.Count(t.Context()); err != nil || counts.Active != 2 || counts.Waiting+counts.Finished != 0 {
			t.Errorf("%+v (%v)", counts, err)
		}
		lock(t, b, "k")
		synctest.Wait()
		if events := b.Next(t.Context()); tell(events) != "k: 0 to 1 (waiting, )" {
			t.Errorf("b heard %s", tell(events))
		}
	})
}

// counting is a session.Deadlocks that counts what it examines.
type counting struct {
	mu            sync.Mutex
	looks, checks []string
}

func (c *counting) Look(_ context.Context, would *claim.WouldWaitError) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = append(c.looks, would.Claim.Resource)
	return nil
}

func (c *counting) Check(_ context.Context, result *committer.Result) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks = append(c.checks, result.Claim.Resource)
	return nil
}

// TestOnlyClaim: a claim is examined if the session has others by the time at which it waits. Nobody waits for one that has no other.
func TestOnlyClaim(t *testing.T) {
	for name, test := range map[string]struct {
		commands      []session.Command
		looks, checks string
	}{
		"nothing else":           {commands: []session.Command{session.Lock{Resource: "x"}}},
		"nothing else any more":  {commands: []session.Command{session.Lock{Resource: "free"}, session.Unlock{Resource: "free"}, session.Lock{Resource: "x"}}},
		"again":                  {commands: []session.Command{session.Lock{Resource: "x"}, session.Unlock{Resource: "x"}, session.Lock{Resource: "x"}}},
		"one that is held":       {commands: []session.Command{session.Lock{Resource: "free"}, session.Lock{Resource: "x"}}, looks: "[x]", checks: "[x]"},
		"one that waits":         {commands: []session.Command{session.Lock{Resource: "x"}, session.Lock{Resource: "y"}}, looks: "[y]", checks: "[y]"},
		"deadlocks are allowed":  {commands: []session.Command{session.Lock{Resource: "free"}, session.Lock{Resource: "x", AllowDeadlock: true}}},
		"one that was not known": {commands: []session.Command{nil, session.Lock{Resource: "x"}}, looks: "[x]", checks: "[x]"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
				holder := open(t, m, "holder")
				for _, resource := range []string{"x", "y"} {
					do(t, holder, session.Lock{Resource: resource})
				}
				counts := new(counting)
				opening := session.Open{ID: "a", Secret: "s", TTL: time.Minute, Deadlocks: counts}
				a, err := m.Open(t.Context(), opening)
				committertest.Check(t, err)
				for _, cmd := range test.commands {
					if cmd != nil {
						do(t, a, cmd)
						continue
					}
					do(t, a, session.Lock{Resource: "free"})
					a.Detach()
					a, err = m.Open(t.Context(), opening)
					committertest.Check(t, err)
				}
				a.Detach()
				if looks, checks := list(counts.looks), list(counts.checks); looks != test.looks || checks != test.checks {
					t.Errorf("looked at %s, checked %s", looks, checks)
				}
			})
		})
	}
}

func list(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprint(names)
}

// TestTwoClaimsAtOnce: of two claims that a session asks for at once, either may come to wait first, so both are examined once they wait.
func TestTwoClaimsAtOnce(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		holder := open(t, m, "holder")
		for _, resource := range []string{"x", "y"} {
			do(t, holder, session.Lock{Resource: resource})
		}
		counts := new(counting)
		a, err := m.Open(t.Context(), session.Open{ID: "a", Secret: "s", TTL: time.Minute, Deadlocks: counts})
		committertest.Check(t, err)
		t.Cleanup(a.Detach)
		for _, resource := range []string{"x", "y"} {
			a.Room(t.Context())
			a.Do(session.Lock{Resource: resource})
		}
		synctest.Wait()
		slices.Sort(counts.checks)
		if list(counts.checks) != "[x y]" {
			t.Errorf("checked %s", list(counts.checks))
		}
	})
}

// unreadable is a store in which the claims of sessions cannot be read while it fails.
type unreadable struct {
	*committertest.Store
	fails atomic.Bool
}

func (s *unreadable) SessionClaims(ctx context.Context, id string) ([]claim.Claim, error) {
	if s.fails.Load() {
		return nil, db.ErrUnavailable
	}
	return s.Store.SessionClaims(ctx, id)
}

// TestClaimOfUnknownOutcome: a Lock is refused whose first attempt was committed, and whose outcome was unknown. Until the session has read its claims, the
// next one is not taken for its only claim.
func TestClaimOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		store := &unreadable{Store: w.Store}
		m := session.New(w.Committer, w.Hub, store, session.Config{}, w.Registry)
		committertest.Run(t, w.Committer)
		committertest.Run(t, m)
		do(t, open(t, m, "holder"), session.Lock{Resource: "x"})
		counts := new(counting)
		a, err := m.Open(t.Context(), session.Open{ID: "a", Secret: "s", TTL: time.Minute, Deadlocks: counts})
		committertest.Check(t, err)
		t.Cleanup(a.Detach)
		store.fails.Store(true)
		var attempts atomic.Int64
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				if attempts.Add(1) > 1 {
					return errors.New("refused")
				}
				return errors.Join(w.Store.Update(ctx, fn), db.ErrOutcomeUnknown)
			}
		})
		do(t, a, session.Lock{Resource: "k"})
		for attempts.Load() < 2 {
			time.Sleep(time.Second)
		}
		synctest.Wait()
		w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
		do(t, a, session.Lock{Resource: "x"})
		if claims, err := w.Store.SessionClaims(t.Context(), "a"); err != nil || len(claims) != 2 {
			t.Errorf("it has %d claims (%v)", len(claims), err)
		}
		if looks, checks := list(counts.looks), list(counts.checks); looks != "[x]" || checks != "[x]" {
			t.Errorf("looked at %s, checked %s", looks, checks)
		}
		store.fails.Store(false)
	})
}
