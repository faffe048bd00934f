package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestLockIsHeld: ready means held, for as long as the runner runs, and not a moment longer.
func TestLockIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var d diary
		r := lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry, d.callbacks())
		p := ifrit.Invoke(r)
		for range 300 { // five minutes, twenty TTLs
			time.Sleep(time.Second)
			token, held := r.Held()
			if owner, granted := w.holder("k"); !held || owner != "a" || granted != token || token == 0 {
				t.Fatalf("held %t with %d; the server: %q with %d", held, token, owner, granted)
			}
		}
		must(t, end(p))
		if owner, _ := w.holder("k"); owner != "" {
			t.Errorf("afterwards %q holds it", owner)
		}
		if _, held := r.Held(); held {
			t.Error("after its end it is within its trust window")
		}
		d.says(t, "acquired")
	})
}

// TestTakeOver: after a signal to the first the second has the lock within one retry
// interval; it has a larger token, and is not ready before.
func TestTakeOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		first := lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry)
		second := lock.NewLockRunner(w.client(), resource("k", "b"), ttl, retry)
		p := ifrit.Invoke(first)
		q := ifrit.Background(second)
		time.Sleep(10 * time.Minute)
		if isReady(q) {
			t.Fatal("the second is ready while the first holds")
		}
		before, _ := first.Held()
		begin := time.Now()
		must(t, end(p))
		<-q.Ready()
		if took := time.Since(begin); took > retry {
			t.Errorf("it took %s", took)
		}
		if after, held := second.Held(); !held || after <= before {
			t.Errorf("held %t, token %d after %d", held, after, before)
		}
		must(t, end(q))
	})
}

// TestOutage: a lease outlives an outage that leaves time for another attempt, and a long one
// ends it before the server would.
func TestOutage(t *testing.T) {
	for outage, want := range map[time.Duration]string{
		6 * time.Second:  "acquired, unverifiable, verified",
		60 * time.Second: "acquired, unverifiable, lost",
	} {
		t.Run(outage.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				var d diary
				r := lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry, d.callbacks())
				p := ifrit.Invoke(r)
				time.Sleep(time.Minute)
				for before := w.count("Lock"); w.count("Lock") == before; { // right after a renewal
					time.Sleep(10 * time.Millisecond)
				}
				w.failing(hang)
				begin := time.Now()
				for time.Since(begin) < outage {
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
					if _, held := r.Held(); held {
						if owner, _ := w.holder("k"); owner != "a" {
							t.Fatalf("after %s it is within its trust window, and %q holds", time.Since(begin), owner)
						}
					}
				}
				w.failing(nil)
				time.Sleep(ttl)
				d.says(t, want)
				if gone, err := exited(p); gone != (outage > ttl) || (gone && !errors.Is(err, lock.ErrTimeUp)) {
					t.Errorf("ended: %t, %v", gone, err)
				}
				_ = end(p)
			})
		})
	}
}

// TestServerRestart: the lock outlives a restart of the server that is shorter than the lease.
func TestServerRestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var d diary
		r := lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry, d.callbacks())
		p := ifrit.Invoke(r)
		before, _ := r.Held()
		w.stop()
		time.Sleep(8 * time.Second)
		w.start()
		time.Sleep(time.Minute)
		if after, held := r.Held(); !held || after != before {
			t.Errorf("held %t, token %d after %d", held, after, before)
		}
		if told := d.String(); strings.Contains(told, "lost") {
			t.Errorf("the callbacks: %s", told)
		}
		must(t, end(p))
	})
}

// TestRevoked: a grant that somebody else has ended is lost with the next renewal, and a
// lock is not taken again.
func TestRevoked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry)
		p := ifrit.Invoke(r)
		token, _ := r.Held()
		_, err := w.client().Release(t.Context(), &models.ReleaseRequest{Resource: resource("k", "a"), Token: &token})
		must(t, err)
		begin := time.Now()
		err = <-p.Wait()
		if !errors.Is(err, lock.ErrLost) || !errors.Is(err, models.ErrResourceNotFound) || time.Since(begin) > retry {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		if owner, _ := w.holder("k"); owner != "" {
			t.Errorf("%q holds it", owner)
		}
	})
}

// TestCollision: the loss to somebody else says to whom.
func TestCollision(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry)
		p := ifrit.Invoke(r)
		_, err := w.client().Release(t.Context(), &models.ReleaseRequest{Resource: resource("k", "a")})
		must(t, err)
		_, err = w.client().Lock(t.Context(), &models.LockRequest{Resource: resource("k", "thief"), TtlInSeconds: 100})
		must(t, err)
		err = <-p.Wait()
		if !errors.Is(err, lock.ErrLost) || !errors.Is(err, models.ErrLockCollision) {
			t.Errorf("got %v", err)
		}
	})
}

// TestPresenceComesBack: a presence that is lost is announced again, under a new token.
func TestPresenceComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var d diary
		r := lock.NewPresenceRunner(w.client(), resource("k", "a"), ttl, retry, d.callbacks())
		p := ifrit.Invoke(r)
		before, _ := r.Held()
		_, err := w.client().Release(t.Context(), &models.ReleaseRequest{Resource: resource("k", "a")})
		must(t, err)
		time.Sleep(10 * time.Second)
		if after, held := r.Held(); !held || after <= before {
			t.Errorf("held %t, token %d after %d", held, after, before)
		}
		w.failing(hang)
		time.Sleep(time.Minute)
		w.failing(nil)
		time.Sleep(ttl/3 + retry) // the end of the attempt that hangs, and the pause after it
		d.says(t, "acquired, lost, acquired, unverifiable, lost, acquired")
		list, err := w.client().FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_PRESENCE})
		must(t, err)
		if len(list.GetResources()) != 1 || list.GetResources()[0].GetValue() != "of a" {
			t.Errorf("the presences: %v", list)
		}
		must(t, end(p))
	})
}

// TestSignalAtOnce: a signal ends the runner in bounded time, also while its first call
// hangs, and leaves nothing behind.
func TestSignalAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.failing(hang)
		p := ifrit.Background(lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry))
		synctest.Wait()
		begin := time.Now()
		must(t, end(p))
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		w.failing(nil)
		if owner, _ := w.holder("k"); owner != "" {
			t.Errorf("%q holds it", owner)
		}
	})
}

// TestUnknownGrant: a grant whose answer was lost is released too.
func TestUnknownGrant(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		client := losing{w.client()}
		p := ifrit.Background(lock.NewLockRunner(client, resource("k", "a"), ttl, retry))
		time.Sleep(time.Second)
		if owner, _ := w.holder("k"); owner != "a" {
			t.Fatalf("%q holds it", owner)
		}
		must(t, end(p))
		if owner, _ := w.holder("k"); owner != "" {
			t.Errorf("%q holds it", owner)
		}
	})
}

// TestWrong: what is wrong is an error at once, of the arguments and of the request.
func TestWrong(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for name, r := range map[string]ifrit.Runner{
			"no client":   lock.NewLockRunner(nil, resource("k", "a"), ttl, retry),
			"no resource": lock.NewLockRunner(w.client(), nil, ttl, retry),
			"no key":      lock.NewLockRunner(w.client(), resource("", "a"), ttl, retry),
			"short TTL":   lock.NewLockRunner(w.client(), resource("k", "a"), time.Millisecond, retry),
			"negative":    lock.NewLockRunner(w.client(), resource("k", "a"), ttl, -1),
			"no logger":   lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry, lock.WithLogger(nil)),
			"a margin":    lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry, lock.WithMargin(ttl/2+1)),
			"no margin":   lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry, lock.WithMargin(ttl/20-1)),
			"no interval": lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry, lock.WithRetryInterval(0)),
			"a claim's":   lock.NewClaimRunner(w.client(), &models.CreateClaimRequest{Resource: "k"}, lock.WithRetryInterval(-1)),
			"jitter":      lock.NewLockRunner(w.client(), resource("k", "a"), ttl, retry, lock.WithJitter(1)),
			"type":        lock.NewLockRunner(w.client(), &models.Resource{Key: "k", Owner: "a", Type: "key"}, ttl, retry),
			"long key":    lock.NewLockRunner(w.client(), resource(string(make([]byte, 5000)), "a"), ttl, retry),
		} {
			if err := <-ifrit.Background(r).Wait(); err == nil {
				t.Errorf("%s: it ran", name)
			}
		}
	})
}

// losing is a client to whom the answers to Lock are lost.
type losing struct{ models.LocketClient }

func (l losing) Lock(ctx context.Context, in *models.LockRequest, opts ...grpc.CallOption) (*models.LockResponse, error) {
	if _, err := l.LocketClient.Lock(ctx, in, opts...); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.Unavailable, "the connection broke")
}
