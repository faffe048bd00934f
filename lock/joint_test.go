package lock_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// both returns a Joint of two locks, with its arguments in this order.
func (w *world) both(owner, first, second string) *lock.Joint {
	return lock.NewJoint(
		lock.NewLockRunner(w.rpc(), resource(first, owner), ttl, retry),
		lock.NewLockRunner(w.rpc(), resource(second, owner), ttl, retry))
}

// holders fails the test unless "a" and "b" are held by these owners.
func (w *world) holders(wantA, wantB string) {
	w.t.Helper()
	w.holds(wantA, "a")
	w.holds(wantB, "b")
}

func TestJointHoldsAll(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := ifrit.Invoke(w.both("x", "b", "a"))
		w.holders("x", "x")
		q := ifrit.Background(w.both("y", "a", "b"))
		time.Sleep(2 * time.Minute)
		if isReady(q) {
			t.Error("the second is ready while the first holds")
		}
		w.holders("x", "x")
		must(t, end(p))
		<-q.Ready()
		w.holders("y", "y")
		must(t, end(q))
		w.holders("", "")
	})
}

// TestJointGivesBack: a Joint that cannot get all locks within a TTL releases the ones that it holds.
func TestJointGivesBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		blocker := ifrit.Invoke(lock.NewLockRunner(w.rpc(), resource("b", "z"), ttl, retry))
		p := ifrit.Background(w.both("x", "a", "b"))
		time.Sleep(ttl - time.Second)
		w.holders("x", "z")
		time.Sleep(2 * time.Second)
		w.holders("", "z")
		time.Sleep(retry)
		w.holders("x", "z")
		must(t, end(blocker))
		<-p.Ready()
		w.holders("x", "x")
		must(t, end(p))
	})
}

// TestJointInTheLastMoment: a Joint gets its last lock in the very moment when its time is up. It either holds all and
// is ready, or holds none.
func TestJointInTheLastMoment(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			f, started := new(fake), time.Now()
			late := lock.WithObserver(lock.Observer{WaitBegins: func(ctx context.Context, _, _ string) (context.Context, func(*lock.Hold, error)) {
				return ctx, func(*lock.Hold, error) { time.Sleep(time.Until(started.Add(ttl))) }
			}})
			joint := lock.NewJoint(
				lock.NewLockRunner(f, resource("a", "x"), ttl, retry),
				lock.NewLockRunner(f, resource("b", "x"), ttl, retry, late))
			p := ifrit.Background(joint)
			time.Sleep(ttl + time.Millisecond)
			synctest.Wait()
			if _, held := joint.Held(); held != isReady(p) {
				t.Errorf("ready: %t, held: %t", isReady(p), held)
			}
			time.Sleep(time.Minute)
			must(t, end(p))
		})
	}
}

// TestJointSignal: a signal ends a Joint at every stage, and all its locks are released.
func TestJointSignal(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, time.Second, ttl - time.Second, ttl + time.Second, time.Minute} {
		inWorld(t, func(t *testing.T, w *world) {
			blocker := ifrit.Invoke(lock.NewLockRunner(w.rpc(), resource("b", "z"), ttl, retry))
			p := ifrit.Background(w.both("x", "a", "b"))
			time.Sleep(after)
			begin := time.Now()
			must(t, end(p))
			if took := time.Since(begin); took > time.Second {
				t.Errorf("after %s the end took %s", after, took)
			}
			w.holders("", "z")
			must(t, end(blocker))
		})
	}
}

// TestJointsNeverBlockEachOther: Joints that name the same locks in different orders all get them.
func TestJointsNeverBlockEachOther(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const many = 6
		done := make(chan error, many)
		for i := range many {
			owner, first, second := string(rune('p'+i)), "a", "b"
			if i%2 == 1 {
				first, second = second, first
			}
			go func() {
				p := ifrit.Background(w.both(owner, first, second))
				<-p.Ready()
				time.Sleep(10 * time.Second)
				done <- end(p)
			}()
		}
		begin := time.Now()
		for range many {
			must(t, <-done)
		}
		t.Logf("%d times 10 s took %s", many, time.Since(begin))
	})
}

func TestJointOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := ifrit.Invoke(lock.NewJoint())
		synctest.Wait()
		must(t, end(none))
	})
}

// guarded is work under a Joint. It notes when it ended.
type guarded struct{ ended time.Time }

func (g *guarded) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	close(ready)
	<-signals
	g.ended = time.Now()
	return nil
}

// TestJointEndsAtOnce: as soon as any of the locks is lost, the work ends, Held is false and Lost is closed, though nothing can be
// released. The other locks are released later, in parallel.
func TestJointEndsAtOnce(t *testing.T) {
	keys := []string{"c", "a", "b"}
	for _, lost := range keys {
		inWorld(t, func(t *testing.T, w *world) {
			var lostAt time.Time
			callbacks := lock.WithCallbacks(lock.Callbacks{Lost: func(error) { lostAt = time.Now() }})
			var runners []*lock.Runner
			for _, key := range keys {
				runners = append(runners, lock.NewLockRunner(unwatched{w.rpc()}, resource(key, "x"), ttl, retry, callbacks))
			}
			joint, work := lock.NewJoint(runners...), new(guarded)
			if tokens, held := joint.Held(); held || tokens != nil {
				t.Errorf("held with %v before it runs", tokens)
			}
			p := ifrit.Invoke(grouper.NewOrdered(os.Interrupt, grouper.Members{{Name: "locks", Runner: joint}, {Name: "work", Runner: work}}))
			w.checkTokens(joint, keys)
			w.failing(only(hang, "Release", "EndClaim"))
			w.take(lost, "x")
			<-joint.Lost()
			if _, held := joint.Held(); held || !time.Now().Equal(lostAt) {
				t.Errorf("%q: held %t when Lost is closed, %s after the loss", lost, held, time.Since(lostAt))
			}
			if err := <-p.Wait(); err == nil || !strings.Contains(err.Error(), `held by "thief"`) { // a group's error does not wrap its members' errors
				t.Errorf("%q: got %v", lost, err)
			}
			if late := work.ended.Sub(lostAt); late != 0 {
				t.Errorf("%q: the work ran on for %s", lost, late)
			}
			w.failing(nil)
			time.Sleep(ttl/20 + time.Second) // the margin, and the next attempt
			for _, key := range keys {
				w.holds(map[bool]string{true: "thief"}[key == lost], key)
			}
		})
	}
}

// checkTokens fails the test unless a Joint holds, and returns the tokens of its locks in their order.
func (w *world) checkTokens(joint *lock.Joint, keys []string) {
	w.t.Helper()
	var want []uint64
	for _, key := range keys {
		_, token := w.holder(key)
		want = append(want, token)
	}
	if tokens, held := joint.Held(); !held || !slices.Equal(tokens, want) {
		w.t.Errorf("held %t with %v, want %v", held, tokens, want)
	}
}

// TestJointRunsAgain: a Joint that has lost a lock runs again when the others are released. Each run has a new Lost channel.
func TestJointRunsAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		joint := w.both("x", "a", "b")
		for range 3 {
			p := ifrit.Invoke(joint)
			select {
			case <-joint.Lost():
				t.Error("Lost is closed while all are held")
			default:
			}
			w.checkTokens(joint, []string{"a", "b"})
			w.release("a", "x")
			<-joint.Lost()
			if err := <-p.Wait(); !errors.Is(err, lock.ErrLost) {
				t.Errorf("got %v", err)
			}
		}
		p := ifrit.Invoke(joint)
		must(t, end(p))
		select {
		case <-joint.Lost():
			t.Error("a signal closed Lost")
		default:
		}
		w.holders("", "")
	})
}

// TestJointOfClaims: a Joint of claims that could not get all of them withdraws them, and makes new ones. It ends when it loses one.
func TestJointOfClaims(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		claim := func(resource, id string) *lock.Runner {
			return lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: resource, Owner: "x", Id: id})
		}
		blocker := ifrit.Invoke(lock.NewLockRunner(w.rpc(), resource("b", "z"), ttl, retry))
		a, b := claim("a", ""), claim("b", "of-b")
		joint := lock.NewJoint(a, b)
		p := ifrit.Background(joint)
		time.Sleep(3 * time.Minute) // it tries many times
		if gone, err := exited(p); gone || isReady(p) {
			t.Fatalf("ended: %t, %v", gone, err)
		}
		must(t, end(blocker))
		<-p.Ready()
		w.holders("x", "x")
		w.checkTokens(joint, []string{"a", "b"})
		if b.ClaimID() == "of-b" || w.status("of-b") != models.Status_STATUS_WITHDRAWN || w.status(b.ClaimID()) != models.Status_STATUS_ACTIVE {
			t.Errorf("the claim %q is %s, the one before it %s", b.ClaimID(), w.status(b.ClaimID()), w.status("of-b"))
		}
		w.revoke(a.ClaimID(), "")
		if err := <-p.Wait(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
		}
		p = ifrit.Invoke(joint)
		w.holders("x", "x")
		must(t, end(p))
		w.holders("", "")
	})
}

// TestJointWithPresence: the loss of a presence ends the Joint, like the loss of a lock.
func TestJointWithPresence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		joint := lock.NewJoint(
			lock.NewLockRunner(w.rpc(), resource("a", "x"), ttl, retry),
			lock.NewPresenceRunner(w.rpc(), resource("b", "x"), ttl, retry))
		p := ifrit.Invoke(joint)
		w.holders("x", "x")
		w.release("b", "x")
		time.Sleep(ttl / 3) // the next renewal is before that
		if gone, err := exited(p); !gone || !errors.Is(err, lock.ErrLost) {
			t.Fatalf("ended: %t, %v", gone, err)
		}
		time.Sleep(time.Minute)
		w.holders("", "")
	})
}
