package lock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/lock"
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

// TestJointGivesBack: a Joint that cannot get all locks within a TTL releases those that it holds.
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
