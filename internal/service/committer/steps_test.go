package committer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
)

var closing = claim.EndSession{ID: "s", Server: "here", Active: claim.Released, Waiting: claim.Withdrawn}

func held(t *testing.T, w *committertest.World) int64 {
	t.Helper()
	counts, err := w.Store.Census(t.Context(), 0)
	committertest.Check(t, err)
	return counts.Active
}

// A session that holds much ends in several transactions, between which others are served, and the answer comes
// after the last.
func TestSessionEndsInSteps(t *testing.T) {
	for name, do := range map[string]func(w *committertest.World) <-chan error{
		"do": func(w *committertest.World) <-chan error {
			done := make(chan error, 1)
			go func() { _, err := w.Do(context.Background(), closing); done <- err }()
			return done
		},
		"submit": func(w *committertest.World) <-chan error {
			done := make(chan error, 1)
			_ = w.Submit(context.Background(), closing, inbox.New(1000, nil), func(_ committer.Result, err error) { done <- err })
			return done
		},
	} {
		t.Run(name, func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				const n = 3*claim.MaxEnds + 10
				w.Session(t, n)
				before, _ := w.Batches(t)
				var served atomic.Int64
				last := int64(n)
				w.Store.Set(func(s *committertest.Store) {
					s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
						err := s.Update(ctx, fn)
						if now := held(t, w); last-now > claim.MaxEnds {
							t.Errorf("one transaction has ended %d claims", last-now)
						} else if last = now; 0 < now && now < n {
							_ = w.Submit(context.Background(), claim.Activate{ID: "none"}, inbox.New(1000, nil), func(committer.Result, error) { served.Add(1) })
						}
						return err
					}
				})
				committertest.Check(t, <-do(w))
				synctest.Wait()
				if held(t, w) != 0 {
					t.Errorf("%d are held", held(t, w))
				}
				if after, _ := w.Batches(t); after-before < 4 || served.Load() != 3 {
					t.Errorf("%d transactions, beside them %d others", after-before, served.Load())
				}
			})
		})
	}
}

// If the caller leaves or the server stops while a session ends, the next one continues.
func TestSessionEndIsInterrupted(t *testing.T) {
	for name, interrupt := range map[string]func(w *committertest.World, leave func()){
		"the caller leaves": func(_ *committertest.World, leave func()) { leave() },
		"the server stops":  func(w *committertest.World, _ func()) { w.Process.Signal(os.Interrupt) },
	} {
		t.Run(name, func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				w.Session(t, 3*claim.MaxEnds)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				w.Store.Set(func(s *committertest.Store) {
					s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
						err := s.Update(ctx, fn)
						interrupt(w, leave)
						time.Sleep(time.Millisecond)
						return err
					}
				})
				_, err := w.Do(ctx, closing)
				if !errors.Is(err, context.Canceled) && !errors.Is(err, committer.ErrStopping) {
					t.Errorf("got %v", err)
				}
				synctest.Wait()
				s, _, err := w.Store.Session(t.Context(), "s")
				committertest.Check(t, err)
				if want := (claim.Ending{Active: claim.Released, Waiting: claim.Withdrawn}); s.Ending != want || held(t, w) == 0 {
					t.Errorf("%+v, and %d are held", s, held(t, w))
				}
			})
		})
	}
}

// When every transaction fails after a while, a batch does not stay longer than the timeout, however often it is cut in
// two.
func TestCuttingEnds(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(context.Context, func(db.Tx) error) error {
				time.Sleep(time.Second)
				return db.ErrConflict
			}
		})
		begin := time.Now()
		for _, r := range w.Send(t.Context(), locks("l", 400)...) {
			if err := (<-r).Err; !errors.Is(err, db.ErrConflict) && !errors.Is(err, db.ErrUnavailable) {
				t.Fatalf("got %v", err)
			}
		}
		if took := time.Since(begin); took > 2*committertest.Timeout+2*time.Second { // by a fake clock
			t.Errorf("it took %s", took)
		}
	})
}

// gap is a transaction that cannot insert rows because of somebody else's lock.
type gap struct{ db.Tx }

func (g gap) Save(queues *claim.Queues) error {
	for _, change := range queues.Changes() {
		if change.Before == nil {
			return db.ErrConflict
		}
	}
	return g.Tx.Save(queues)
}

// TestRenewalBesideLockedGap: some claims cannot be made, and each takes seconds to fail. A renewal in the same batch
// still succeeds.
func TestRenewalBesideLockedGap(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Create{ID: "held", Resource: "held", TTL: time.Hour})
		gate := make(chan struct{})
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				<-gate
				err := s.Update(ctx, func(tx db.Tx) error { return fn(gap{tx}) })
				if errors.Is(err, db.ErrConflict) {
					time.Sleep(3 * time.Second)
				}
				return err
			}
		})
		w.Send(t.Context(), claim.Activate{ID: "none"})
		replies := w.Send(t.Context(), creates("new", 40, 0)...)
		renewal := w.Send(t.Context(), claim.Renew{ID: "held", TTL: time.Hour})[0]
		close(gate)
		if err := committertest.Receive(t, renewal).Err; err != nil {
			t.Errorf("the renewal: %v", err)
		}
		for _, r := range replies {
			if err := committertest.Receive(t, r).Err; !errors.Is(err, db.ErrConflict) && !errors.Is(err, db.ErrUnavailable) {
				t.Errorf("a new claim: %v", err)
			}
		}
	})
}

// TestSlowAnswers: a recipient that is slow to take an answer, or a beat, delays nobody.
func TestSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		gate := make(chan struct{})
		w.SetSessions(slowSessions{gate})
		committertest.Run(t, w.Committer)
		answered := false
		committertest.Check(t, w.Submit(t.Context(), committertest.Lock("slow"), inbox.New(1000, nil), func(committer.Result, error) {
			<-gate
			answered = true
		}))
		for i := range 3 {
			time.Sleep(db.BeatInterval)
			w.Must(t, committertest.Lock(fmt.Sprint(i)))
		}
		if answered {
			t.Error("it was not slow")
		}
		close(gate)
		synctest.Wait()
		if !answered {
			t.Error("there was no answer")
		}
	})
}

// slowSessions hear of beats, and block until a gate opens.
type slowSessions struct{ gate chan struct{} }

func (slowSessions) Any() bool                { return true }
func (s slowSessions) Beaten(time.Time, bool) { <-s.gate }
