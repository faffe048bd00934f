package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer"
	"github.com/locket-service/locket/internal/committer/committertest"
	"github.com/locket-service/locket/internal/inbox"
	"github.com/locket-service/locket/internal/session"
)

// check is a session.Deadlocks that only examines claims that wait already.
type check func(context.Context, *committer.Result) error

func (check) Look(context.Context, *claim.WouldWaitError) error { return nil }

func (c check) Check(ctx context.Context, result *committer.Result) error { return c(ctx, result) }

// openChecked opens a session with a session.Deadlocks.
func openChecked(t *testing.T, m *session.Manager, id string, looks check) *session.Attached {
	t.Helper()
	a, err := m.Open(t.Context(), session.Open{ID: id, Secret: "s", TTL: time.Minute, Sequence: 1, Deadlocks: looks})
	committertest.Check(t, err)
	t.Cleanup(a.Detach)
	return a
}

// TestGrantDuringCheck: a grant or an end of a claim during the check for deadlocks is told after the answer to its
// Lock.
func TestGrantDuringCheck(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		checked := make(chan struct{})
		b := openChecked(t, m, "b", func(context.Context, *committer.Result) error {
			<-checked
			return nil
		})
		lock(t, a, "k")
		synctest.Wait()
		lock(t, b, "k")
		synctest.Wait()
		a.Next(t.Context())
		b.Next(t.Context())
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
		a := openChecked(t, m, "a", func(ctx context.Context, _ *committer.Result) error {
			<-broken
			checked <- ctx.Err()
			return nil
		})
		do(t, a, session.Lock{Sequence: 2, Resource: "k"})
		a.End(session.ErrDetached)
		synctest.Wait()
		close(broken)
		committertest.Check(t, <-checked)
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
		b := openChecked(t, m, "b", func(_ context.Context, result *committer.Result) error {
			if withdrawn != "" {
				return nil
			}
			withdrawn = result.Claim.ID
			stop := w.Hub.Follow("b", inbox.New(1000, nil), nobody{}) // changes of b's claims do not arrive here
			defer stop()
			w.Must(t, claim.Withdraw{ID: withdrawn, Reason: "a deadlock"})
			return refused
		})
		b.Next(t.Context())
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
		b, err := m.Open(t.Context(), session.Open{ID: "b", Secret: "s", TTL: time.Minute, Sequence: 1, Deadlocks: looks})
		committertest.Check(t, err)
		t.Cleanup(b.Detach)
		b.Next(t.Context())
		lock(t, b, "k")
		synctest.Wait()
		if events := b.Next(t.Context()); len(events) != 1 || !errors.Is(events[0].Err, refused) {
			t.Errorf("b heard %+v", events)
		}
		if counts, err := w.Store.Count(t.Context()); err != nil || counts.Active != 1 || counts.Waiting+counts.Finished != 0 {
			t.Errorf("%+v (%v)", counts, err)
		}
		lock(t, b, "k")
		synctest.Wait()
		if events := b.Next(t.Context()); tell(events) != "k: 0 to 1 (waiting, )" {
			t.Errorf("b heard %s", tell(events))
		}
	})
}
