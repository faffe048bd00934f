package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/lock"
)

// weather is the state of a network. Of 100 requests some hang, fail before the server gets them, are delayed, or lose
// their answers.
type weather struct{ bad atomic.Int32 }

func (n *weather) isBad() bool { return rand.IntN(100) < int(n.bad.Load()) }

func (n *weather) before(ctx context.Context, _ string) error {
	if !n.isBad() {
		return nil
	}
	switch rand.IntN(3) {
	case 0:
		return hang(ctx, "")
	case 1:
		return status.Error(codes.Unavailable, "lost on the way")
	default:
		pause(ctx)
		return nil
	}
}

func (n *weather) after(ctx context.Context, _ string) error {
	if rand.IntN(3) > 0 || !n.isBad() {
		return nil
	}
	pause(ctx)
	return status.Error(codes.Unavailable, "the answer was lost")
}

// pause waits for a while, or until the caller's deadline.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(ttl)): // real time: none, weather is in bubbles
	}
}

// TestTrustWindowsNeverOverlap: with any faults of the network, the trust windows of two runners never overlap, and
// none lasts while another owner holds the lock on the server. Tokens rise from holder to holder.
func TestTrustWindowsNeverOverlap(t *testing.T) { testTrustWindows(t, 4*time.Minute) }

func testTrustWindows(t *testing.T, length time.Duration) {
	t.Helper()
	const contenders = 4
	inWorld(t, func(t *testing.T, w *world) {
		var network weather
		w.failing(only(network.before, "Lock"))
		w.answering(only(network.after, "Lock"))
		done := make(chan struct{})
		runners := make([]*lock.Runner, contenders)
		processes := make(chan ifrit.Process, contenders)
		for i := range contenders {
			runners[i] = lock.NewLockRunner(w.rpc(), resource("k", fmt.Sprint(i)), ttl, retry)
			go contend(runners[i], done, processes)
		}
		var last uint64
		held, checks := 0, 0
		for begin := time.Now(); time.Since(begin) < length; time.Sleep(200 * time.Millisecond) {
			if checks%200 == 0 {
				network.bad.Store(int32(rand.IntN(90)))
			}
			checks++
			synctest.Wait()
			for i, r := range runners {
				token, holds := r.Held()
				if !holds {
					continue
				}
				held++
				if owner, granted := w.holder("k"); owner != fmt.Sprint(i) || granted != token {
					t.Fatalf("after %s runner %d is within its trust window with token %d, and %q holds with %d", time.Since(begin), i, token, owner, granted)
				}
				if token < last {
					t.Fatalf("token %d after %d", token, last)
				}
				last = token
			}
		}
		t.Logf("held in %d of %d checks", held, checks)
		if held > checks || held == 0 || length > time.Hour && held < checks/3 {
			t.Errorf("held in %d of %d checks", held, checks)
		}
		close(done)
		for range contenders {
			<-processes
		}
	})
}

// contend runs a runner repeatedly, releases its lock from time to time, and reports its end.
func contend(r *lock.Runner, done chan struct{}, ended chan<- ifrit.Process) {
	for {
		p := ifrit.Background(r)
		select {
		case <-p.Wait():
		case <-time.After(30*time.Second + rand.N(2*time.Minute)):
			_ = end(p)
		case <-done:
			_ = end(p)
			ended <- p
			return
		}
	}
}

// TestRenewalsSpread: runners that start at the same time do not renew at the same time.
func TestRenewalsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 50
		f := new(fake)
		processes := make([]ifrit.Process, many)
		for i := range many {
			processes[i] = ifrit.Background(lock.NewLockRunner(f, resource(fmt.Sprint(i), "a"), ttl, retry))
		}
		time.Sleep(time.Minute)
		perSecond := make([]int, 30)
		for i := range perSecond {
			before := f.count("Lock")
			time.Sleep(time.Second)
			perSecond[i] = f.count("Lock") - before
		}
		for _, n := range perSecond {
			if n > many/2 {
				t.Errorf("renewals in each second: %v", perSecond)
				break
			}
		}
		for _, p := range processes {
			must(t, end(p))
		}
	})
}
