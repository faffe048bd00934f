package quota_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/quota"
)

// as returns a context for commands of an identity with a quota.
func as(t *testing.T, identity string, most access.Quota) context.Context {
	t.Helper()
	caller := access.Caller{Identity: access.Identity{Name: identity}, Quota: &most}
	return access.WithCaller(t.Context(), func() access.Caller { return caller })
}

// beyond returns the quota.Error of a command, nil if it has none.
func beyond(err error) (e *quota.Error) {
	_ = errors.As(err, &e)
	return e
}

func create(id string) claim.Create { return claim.Create{ID: id, Resource: id, TTL: time.Hour} }

// on returns a claim of a resource.
func on(resource, id string) claim.Create {
	return claim.Create{ID: id, Resource: resource, Owner: id, TTL: time.Hour}
}

// noteCounts returns how many counts the store has been asked for.
func noteCounts(w *committertest.World) *atomic.Int64 {
	var counts atomic.Int64
	w.Store.Set(func(s *committertest.Store) { s.OnUsage = func() { counts.Add(1) } })
	return &counts
}

// TestQuotaOfClaims: of many concurrent requests exactly the allowed number makes claims, and the store counts them
// once in two seconds. Callers without a quota cost no count.
func TestQuotaOfClaims(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		const most = 10
		counts := noteCounts(w)
		ann, made := as(t, "cert:ann", access.Quota{Held: most}), 0
		for round := range 3 {
			var cmds []claim.Command
			for i := range 50 {
				cmds = append(cmds, create(fmt.Sprint(round, "/", i)))
			}
			for _, r := range w.Send(ann, cmds...) {
				switch err := committertest.Receive(t, r).Err; {
				case err == nil:
					made++
				case beyond(err) == nil:
					t.Fatal(err)
				}
			}
		}
		if made != most || counts.Load() != 1 {
			t.Errorf("%d claims were made, %d counts", made, counts.Load())
		}
		w.Must(t, create("nobody's"))
		ben := as(t, "cert:ben", access.Quota{Held: 1})
		for range 2 {
			if _, err := w.Do(ben, create("ben's")); err != nil || counts.Load() != 2 {
				t.Errorf("another identity: %v, %d counts", err, counts.Load())
			}
			w.Must(t, claim.End{ID: "ben's"}) // the caller does not matter
		}
	})
}

// TestQuotaOfOtherServers: claims that another server makes and ends count after two seconds at the latest.
func TestQuotaOfOtherServers(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		ann := as(t, "cert:ann", access.Quota{Held: 2})
		try := func(id string) error {
			_, err := w.Do(ann, create(id))
			return err
		}
		committertest.Check(t, try("1"))
		for _, cmd := range []claim.Command{claim.End{ID: "1"}, create("x")} {
			committertest.Transact(t, w.Store, cmd)
		}
		committertest.Check(t, try("2"))
		if err := try("3"); beyond(err) == nil { // 1 is counted still
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		committertest.Check(t, try("3"))
		if err := try("4"); beyond(err) == nil {
			t.Error(err)
		}
	})
}

// TestQuotaAfterFailures: a transaction that failed, or whose outcome is not known, does not make the counts wrong.
func TestQuotaAfterFailures(t *testing.T) {
	for _, done := range []bool{false, true} {
		committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
			ann := as(t, "cert:ann", access.Quota{Held: 3})
			try := func(id string) error {
				_, err := w.Do(ann, create(id))
				return err
			}
			committertest.Check(t, try("1"))
			for _, fails := range []error{db.ErrUnavailable, db.ErrOutcomeUnknown} {
				w.Store.Set(func(s *committertest.Store) {
					s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
						_ = s.Update(ctx, func(tx db.Tx) error {
							if err := fn(tx); err != nil || !done || errors.Is(fails, db.ErrUnavailable) {
								return errors.Join(err, fails)
							}
							return nil
						})
						return fails
					}
				})
				if err := try("2"); !errors.Is(err, fails) {
					t.Fatal(err)
				}
			}
			w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
			synctest.Wait()
			committertest.Check(t, try("2")) // a retry, or not
			committertest.Check(t, try("3"))
			if err := try("4"); beyond(err) == nil {
				t.Error(err)
			}
		})
	}
}

// TestLimits: only what makes one more claim counts. At a limit an identity may still repeat its requests, renew and end
// its claims, and its waiting claims are granted.
func TestLimits(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		must := func(most access.Quota, cmd claim.Command) claim.Claim {
			t.Helper()
			result, err := w.Do(as(t, "ann", most), cmd)
			if err != nil {
				t.Fatalf("%+v with %+v: %v", cmd, most, err)
			}
			return result.Claim
		}
		// limited checks that a command is refused, leaves nothing behind, and succeeds with one claim more.
		limited := func(most access.Quota, cmd claim.Command) claim.Claim {
			t.Helper()
			want, more := quota.Error{Identity: "ann", Status: claim.Active, Limit: most.Held}, access.Quota{Held: most.Held + 1}
			if most.WaitingClaims > 0 {
				want.Status, want.Limit, more = claim.Waiting, most.WaitingClaims, access.Quota{WaitingClaims: most.WaitingClaims + 1}
			}
			result, err := w.Do(as(t, "ann", most), cmd)
			if e := beyond(err); e == nil || *e != want || !strings.Contains(err.Error(), fmt.Sprint(want.Limit)) {
				t.Fatalf("%+v with %+v: %+v, %v", cmd, most, result, err)
			}
			return must(more, cmd)
		}
		const few = 1 // fewer than ann has
		for _, id := range []string{"1", "2", "3"} {
			must(access.Quota{}, create(id))
		}
		w.Must(t, create("busy")) // somebody else's
		must(access.Quota{}, on("busy", "4"))
		must(access.Quota{}, on("busy", "5"))

		limited(access.Quota{Held: 3}, on("printer", "a"))
		must(access.Quota{Held: few, WaitingClaims: few}, on("printer", "a")) // a retry
		if _, err := w.Do(as(t, "ann", access.Quota{Held: few}), claim.Create{ID: "a", Resource: "other"}); !errors.Is(err, claim.ErrIDTaken) {
			t.Errorf("an id that is taken: %v", err)
		}
		limited(access.Quota{WaitingClaims: 2}, on("printer", "b"))
		must(access.Quota{Held: 4}, on("printer", "c")) // waits, while the maximum number is held
		must(access.Quota{Held: few, WaitingClaims: few}, claim.Renew{ID: "a", TTL: time.Minute})
		must(access.Quota{Held: few, WaitingClaims: few}, claim.End{ID: "a"}) // grants b
		if c, _, _, err := w.Store.Get(t.Context(), "b", 0); err != nil || c.Status != claim.Active {
			t.Errorf("the next claim is %+v, %v", c, err)
		}
		if _, err := w.Do(as(t, "ann", access.Quota{Held: 3}), on("printer", "more")); beyond(err) == nil {
			t.Errorf("a claim that waits, beside more than may be held: %v", err)
		}
		if _, err := w.Do(as(t, "ann", access.Quota{Held: few}), claim.Create{ID: "try", Resource: "busy", NoWait: true}); beyond(err) != nil || err == nil {
			t.Errorf("a claim that may not wait, on a held resource: %v", err)
		}

		limited(access.Quota{Held: 4}, claim.Acquire{ID: "d", Resource: "lock", Owner: "o", TTL: time.Minute})
		must(access.Quota{Held: few}, claim.Acquire{ID: "e", Resource: "lock", Owner: "o", TTL: time.Minute})
		if _, err := w.Do(as(t, "ann", access.Quota{Held: few}), claim.Acquire{ID: "f", Resource: "lock", Owner: "other", TTL: time.Minute}); beyond(err) != nil || err == nil {
			t.Errorf("a lock that another owner holds: %v", err)
		}
		if _, err := w.Do(as(t, "ann", access.Quota{Held: few}), claim.Acquire{ID: "g", Resource: "busy", Owner: "o", TTL: time.Minute}); beyond(err) != nil || err == nil {
			t.Errorf("a lock that somebody else holds: %v", err)
		}
	})
}

// TestLapsedHolder: a holder whose lease has run out, and that nobody has ended yet, does not make a claim wait.
func TestLapsedHolder(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Create{ID: "old", Resource: "r", TTL: time.Second})
		w.Must(t, create("1"))
		ann := as(t, "ann", access.Quota{Held: 1})
		_, err := w.Do(ann, create("ann's"))
		committertest.Check(t, err)
		if _, err := w.Do(ann, on("r", "waits")); err != nil {
			t.Errorf("a claim that waits: %v", err)
		}
		w.Must(t, claim.End{ID: "waits"})
		time.Sleep(time.Minute)
		if _, err := w.Do(ann, on("r", "held")); beyond(err) == nil {
			t.Errorf("a claim that would be held at once: %v", err)
		}
	})
}

// quarantined is a store in a quarantine.
type quarantined struct{ quota.Store }

func (s quarantined) Queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
	queue, now, err := s.Store.Queue(ctx, resource, limit)
	now.Quarantine = now.Lease.Add(time.Hour)
	return queue, now, err
}

// TestQuotaInQuarantine: a claim on a free resource waits during a quarantine, and counts as waiting.
func TestQuotaInQuarantine(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		held := as(t, "ann", access.Quota{})
		for _, cmd := range []claim.Command{create("1"), create("2"), on("1", "waits")} {
			_, err := w.Do(held, cmd)
			committertest.Check(t, err)
		}
		g := quota.New(quarantined{w.Store}, func(string) {})
		admit := func(most access.Quota) error {
			read, _ := g.Admit(access.CallerOf(as(t, "ann", most)), create("new"))
			return read(t.Context())
		}
		if e := beyond(admit(access.Quota{Held: 3, WaitingClaims: 1})); e == nil || *e != (quota.Error{Identity: "ann", Status: claim.Waiting, Limit: 1}) {
			t.Errorf("beyond the claims that may wait: %v", e)
		}
		if err := admit(access.Quota{Held: 2, WaitingClaims: 2}); err != nil {
			t.Errorf("one of the claims that may wait: %v", err)
		}
	})
}

// TestRefusedClaims: the guard reports the resource of each claim that it refuses, and of no other one.
func TestRefusedClaims(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		var refused []string
		g := quota.New(w.Store, func(resource string) { refused = append(refused, resource) })
		caller := access.CallerOf(as(t, "ann", access.Quota{Held: 1}))
		for _, id := range []string{"1", "2", "3"} {
			if read, _ := g.Admit(caller, create(id)); read != nil {
				_ = read(t.Context())
			}
		}
		if fmt.Sprint(refused) != "[2 3]" {
			t.Errorf("%q are refused", refused)
		}
		if read, release := g.Admit(access.Caller{}, create("4")); read != nil || release != nil {
			t.Error("a caller without a quota costs something")
		}
	})
}

// slow is a store whose count answers when the test lets it.
type slow struct {
	quota.Store
	counts int
	answer chan claim.Count
	except []string
}

func (s *slow) Usage(_ context.Context, _ string, except []string) (claim.Count, error) {
	s.counts++
	s.except = except
	return <-s.answer, nil
}

// guard returns a guard on a slow store, and a function that counts admitted claims until the first refusal.
func guard(t *testing.T, most int) (s *slow, g *quota.Guard, admit func(id string) chan error) {
	t.Helper()
	s = &slow{Store: committertest.New(t, 0).Store, answer: make(chan claim.Count, 100)}
	g = quota.New(s, func(string) {})
	return s, g, func(id string) chan error {
		done := make(chan error, 1)
		read, _ := g.Admit(access.CallerOf(as(t, "ann", access.Quota{Held: most})), create(id))
		if read == nil {
			done <- nil
			return done
		}
		go func() { done <- read(t.Context()) }()
		synctest.Wait()
		return done
	}
}

// granted is the transition of a claim that is made and granted, and ended the transition of its end.
func granted(id string) claim.Transition {
	return claim.Transition{After: &claim.Claim{ID: id, Identity: "ann", Status: claim.Active}}
}

func ended(id string) claim.Transition {
	return claim.Transition{Before: granted(id).After, After: &claim.Claim{ID: id, Identity: "ann", Status: claim.Released}}
}

// TestCountBesideClaims: a count leaves out the claims that were on their way when it began, and adds what this server
// commits meanwhile. Claims that come meanwhile wait for it, and share it.
func TestCountBesideClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, admit := guard(t, 5)
		first := admit("1")
		s.answer <- claim.Count{Active: 2}
		committertest.Check(t, <-first)
		time.Sleep(2 * time.Second)
		second, third := admit("2"), admit("3")
		if s.counts != 2 || fmt.Sprint(s.except) != "[1]" {
			t.Fatalf("%d counts, the last one without %v", s.counts, s.except)
		}
		g.Committed(claim.Instant{}, []claim.Transition{granted("1"), granted("another"), ended("old")})
		s.answer <- claim.Count{Active: 2} // and old has not ended yet
		committertest.Check(t, <-second)
		committertest.Check(t, <-third)
		if err := <-admit("4"); beyond(err) == nil {
			t.Errorf("beyond three that are held and two that are on their way: %v", err)
		}
	})
}

// TestCountMissed: after a transaction with unknown changes the store counts again, even while it counts.
func TestCountMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, admit := guard(t, 5)
		first := admit("1")
		g.Missed()
		s.answer <- claim.Count{}
		committertest.Check(t, <-first)
		for n := range 2 {
			s.answer <- claim.Count{}
			committertest.Check(t, <-admit(fmt.Sprint("more ", n)))
			if s.counts != 2+n {
				t.Errorf("%d counts", s.counts)
			}
			g.Missed()
		}
	})
}

// TestLargeCountsAreRare: the claims of an identity with very many are counted again seldom, and the claims of an identity
// that has few every two seconds. What this server changes is in the count at once.
func TestLargeCountsAreRare(t *testing.T) {
	for claims, most := range map[int]int{10: 31, 200_000: 8} {
		synctest.Test(t, func(t *testing.T) {
			s, g, admit := guard(t, claims+600)
			for range most + 1 {
				s.answer <- claim.Count{Active: claims}
			}
			for i := range 600 {
				id := fmt.Sprint(i)
				committertest.Check(t, <-admit(id))
				g.Committed(claim.Instant{}, []claim.Transition{granted(id)})
				time.Sleep(100 * time.Millisecond)
			}
			if s.counts > most || s.counts < 4 {
				t.Errorf("%d claims were counted %d times in a minute", claims, s.counts)
			}
		})
	}
}

// TestLeavingCaller: a claim counts until its command is decided, even after its caller has left.
func TestLeavingCaller(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		ann := as(t, "ann", access.Quota{Held: 1})
		_, err := w.Do(ann, create("1"))
		committertest.Check(t, err)
		w.Must(t, claim.End{ID: "1"})
		goOn := w.Store.Hold()
		leaving, leave := context.WithCancel(ann)
		first := w.Send(leaving, create("2"))[0]
		leave()
		if err := committertest.Receive(t, first).Err; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := w.Do(ann, create("3")); beyond(err) == nil {
			t.Errorf("beside a claim that may be made yet: %v", err)
		}
		goOn()
		synctest.Wait()
		if !w.Has(t, "2") {
			t.Error("the claim was not made")
		}
		if _, err := w.Do(ann, create("3")); beyond(err) == nil {
			t.Errorf("beside a claim that was made: %v", err)
		}
	})
}

var _ committer.Guard = (*quota.Guard)(nil)

// TestUnusedCounts: the guard keeps nothing of an identity that has made no claim for a minute.
func TestUnusedCounts(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		counts := noteCounts(w)
		for i := range 100 {
			_, err := w.Do(as(t, fmt.Sprint("cert:", i), access.Quota{Held: 1}), create(fmt.Sprint(i)))
			committertest.Check(t, err)
		}
		time.Sleep(2 * time.Minute)
		_, err := w.Do(as(t, "cert:last", access.Quota{Held: 1}), create("last"))
		committertest.Check(t, err)
		if n := w.Guard.Identities(); n != 1 || counts.Load() != 101 {
			t.Errorf("it knows %d identities after %d counts", n, counts.Load())
		}
	})
}
