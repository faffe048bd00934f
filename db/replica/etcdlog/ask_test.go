package etcdlog_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/order"
)

// asked is how a request is answered in a bubble, and what came of it.
type asked struct {
	attempts int
	took     time.Duration
	err      error
}

// ask makes a request of members, in a bubble. It may take as long as an append. The answer to an attempt gets the time since the first one.
func ask(t *testing.T, members int, answer func(ctx context.Context, member int, since time.Duration) error) (a asked) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		attempts := make(chan struct{}, 1000)
		a.err = etcdlog.OpenNone(ctx, members).Ask(ctx, func(ctx context.Context, member int) error {
			attempts <- struct{}{}
			return answer(ctx, member, time.Since(begin))
		})
		a.took, a.attempts = time.Since(begin), len(attempts)
	})
	t.Logf("%d members: %d attempts, %v: %v", members, a.attempts, a.took, a.err)
	return a
}

// lasts waits for a while, or until the context ends.
func lasts(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d): // real time: none, it runs in a bubble
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestSlowEtcd: a request gets the answer to its first attempt, however long that takes: a later one takes as long. Attempts are
// few: each one of an append has an etcd whose disk is slow write the record once more.
func TestSlowEtcd(t *testing.T) {
	for _, members := range []int{1, 3} {
		for _, each := range []time.Duration{140, 290, 310, 590, 610, 990, 1900} {
			each *= time.Millisecond
			a := ask(t, members, func(ctx context.Context, _ int, _ time.Duration) error { return lasts(ctx, each) })
			if a.err != nil || a.took != each || a.attempts > 13 {
				t.Errorf("with %d members that take %v a request took %v, and %d attempts: %v", members, each, a.took, a.attempts, a.err)
			}
		}
	}
}

// TestVanishingRequests: what is under way when etcd's leader fails may never be answered. Another attempt is made soon after there
// is a new leader, and a member that hangs does not hold it up.
func TestVanishingRequests(t *testing.T) {
	for _, members := range []int{1, 3} {
		for election := time.Duration(0); election < 1500; election += 50 {
			a := ask(t, members, func(ctx context.Context, member int, since time.Duration) error {
				if since < election*time.Millisecond || members > 1 && member == 0 {
					return lasts(ctx, time.Hour)
				}
				return nil
			})
			if a.err != nil {
				t.Errorf("with %d members and an election of %d ms: %v", members, election, a.err)
			}
		}
	}
}

// TestDeadMember: a member that refuses every attempt at once does not keep the others from being asked again.
func TestDeadMember(t *testing.T) {
	a := ask(t, 3, func(ctx context.Context, member int, since time.Duration) error {
		switch {
		case member == 0:
			return errors.New("connection refused")
		case since < 700*time.Millisecond:
			return lasts(ctx, time.Hour)
		}
		return nil
	})
	if a.err != nil || a.took > 1100*time.Millisecond {
		t.Errorf("it took %v: %v", a.took, a.err)
	}
}

// TestMembersWithoutLeader: members that refuse at once are asked again and again, and one that hangs is left alone.
func TestMembersWithoutLeader(t *testing.T) {
	var hung atomic.Int64
	a := ask(t, 3, func(ctx context.Context, member int, since time.Duration) error {
		switch {
		case member == 0:
			hung.Add(1)
			return lasts(ctx, time.Hour)
		case since < 800*time.Millisecond:
			return errors.New("there is no leader")
		}
		return nil
	})
	if a.err != nil || a.took > 850*time.Millisecond || hung.Load() > 3 {
		t.Errorf("it took %v, and %d attempts at the member that hangs: %v", a.took, hung.Load(), a.err)
	}
	if a := ask(t, 3, func(ctx context.Context, _ int, _ time.Duration) error { return lasts(ctx, time.Hour) }); !errors.Is(a.err, order.ErrUnavailable) {
		t.Errorf("when nobody answers: %v", a.err)
	}
}

// TestBusyEtcd: where etcd takes long for each attempt, one after the other, a request that is made again and again does not keep it busy.
func TestBusyEtcd(t *testing.T) {
	for members, each := range map[int]time.Duration{1: 700 * time.Millisecond, 3: 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			l := etcdlog.OpenNone(t.Context(), members)
			var busy sync.Mutex // guards the following
			until, attempts := time.Now(), 0
			answer := func(ctx context.Context, _ int) error {
				busy.Lock()
				if now := time.Now(); until.Before(now) {
					until = now
				}
				until = until.Add(each)
				mine := time.Until(until)
				attempts++
				busy.Unlock()
				return lasts(ctx, mine)
			}
			unanswered := 0
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				if l.Ask(ctx, answer) != nil {
					unanswered++
				}
				cancel()
			}
			busy.Lock()
			defer busy.Unlock()
			t.Logf("%d members: %d attempts at 20 requests, %d unanswered, and %v are left to do", members, attempts, unanswered, time.Until(until))
			if unanswered > 10 || time.Until(until) > 2*time.Second {
				t.Errorf("the requests keep etcd busy")
			}
		})
	}
}
