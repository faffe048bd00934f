package lock_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestRenewalsPerTTL: a lock is renewed after a third of its TTL, shortened by the jitter, whatever the retry interval is.
func TestRenewalsPerTTL(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, 15 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f := new(fake)
			p := ifrit.Invoke(lock.NewLockRunner(f, resource("k", ""), ttl, 100*time.Millisecond))
			q := ifrit.Invoke(lock.NewClaimRunner(f, &models.CreateClaimRequest{Resource: "c", Ttl: proto.Float64(ttl.Seconds())}))
			time.Sleep(ttl)
			locks, claims := f.count("Lock"), f.count("UpdateClaim")
			time.Sleep(20 * ttl)
			locks, claims = f.count("Lock")-locks, f.count("UpdateClaim")-claims
			t.Logf("TTL %s: %d and %d renewals in 20 TTLs", ttl, locks, claims)
			if min(locks, claims) < 60 || max(locks, claims) > 75 {
				t.Errorf("TTL %s: %d and %d renewals in 20 TTLs, want 60 to 75", ttl, locks, claims)
			}
			must(t, errors.Join(end(p), end(q)))
		})
	}
}

// TestRetryInterval: WithRetryInterval sets the pause between two attempts to acquire. For a claim it is a quarter of the TTL at most.
func TestRetryInterval(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		claim := &models.CreateClaimRequest{Resource: "k", Ttl: proto.Float64(ttl.Seconds())}
		for name, c := range map[string]struct {
			runner *lock.Runner
			method string
			least  int // attempts in a minute
			most   int
		}{
			"lock":         {lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry), "Lock", 12, 13},
			"lock, option": {lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry, lock.WithRetryInterval(time.Second)), "Lock", 60, 61},
			"claim":        {lock.NewClaimRunner(w.rpc(), claim, lock.WithRetryInterval(time.Hour)), "CreateClaim", 16, 17},
		} {
			w.failing(saying(codes.Unavailable))
			before := w.count(c.method)
			p := ifrit.Background(c.runner)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := w.count(c.method) - before; got < c.least || got > c.most+c.most/4 {
				t.Errorf("%s: %d attempts in a minute, want %d to %d", name, got, c.least, c.most)
			}
			must(t, end(p))
		}
	})
}

// TestDenied: a runner whose caller may not lock reports it at once: before it holds, Run returns the error; while it holds, Unverifiable
// is called, and the lock is kept within the trust window.
func TestDenied(t *testing.T) {
	for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied} {
		inWorld(t, func(t *testing.T, w *world) {
			w.failing(saying(code))
			claim := &models.CreateClaimRequest{Resource: "c"}
			for _, r := range []*lock.Runner{
				lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry),
				lock.NewPresenceRunner(w.rpc(), resource("k", ""), ttl, retry),
				lock.NewClaimRunner(w.rpc(), claim),
			} {
				begin := time.Now()
				if err := <-ifrit.Background(r).Wait(); status.Code(err) != code || time.Since(begin) > 0 {
					t.Errorf("before it holds, after %s: %v", time.Since(begin), err)
				}
			}
			w.failing(nil)
			var d diary
			r := lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry, d.callbacks())
			p := ifrit.Invoke(r)
			w.failing(saying(codes.Unavailable))
			for d.String() != "acquired, unverifiable" {
				time.Sleep(time.Millisecond)
			}
			w.failing(saying(code))
			time.Sleep(2 * time.Second)
			if _, held := r.Held(); !held {
				t.Error("lost within the trust window")
			}
			w.failing(nil)
			time.Sleep(2 * time.Second)
			d.says(t, "acquired, unverifiable, unverifiable, verified")
			must(t, end(p))
		})
	}
}

// TestPresenceRefused: for a presence that was lost and may not be announced again, Refused is called. It is announced again when
// that is allowed.
func TestPresenceRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var told diary
		r := lock.NewPresenceRunner(w.rpc(), resource("k", ""), ttl, retry, lock.WithCallbacks(lock.Callbacks{
			Refused: func(err error) { told.note("%s", status.Code(err)) },
		}))
		p := ifrit.Invoke(r)
		w.failing(saying(codes.PermissionDenied))
		time.Sleep(2 * ttl)
		if gone, err := exited(p); gone {
			t.Fatalf("it ended: %v", err)
		}
		if !strings.HasPrefix(told.String(), "PermissionDenied") {
			t.Errorf("reported: %s", told.String())
		}
		w.failing(nil)
		time.Sleep(2 * retry)
		if _, held := r.Held(); !held {
			t.Error("it did not come back")
		}
		must(t, end(p))
	})
}
