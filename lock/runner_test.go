package lock_test

import (
	"context"
	"errors"
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

// TestOutage: a lease outlives an outage that leaves time for another attempt.
func TestOutage(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var d diary
		r := lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry, d.callbacks())
		p := ifrit.Invoke(r)
		time.Sleep(time.Minute)
		for before := w.count("Lock"); w.count("Lock") == before; { // right after a renewal
			time.Sleep(10 * time.Millisecond)
		}
		w.failing(hang)
		for range 60 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if _, held := r.Held(); !held {
				t.Fatal("lost")
			}
		}
		w.failing(nil)
		time.Sleep(ttl)
		d.says(t, "acquired, unverifiable, verified")
		must(t, end(p))
	})
}

// TestRevoked: a grant that somebody else has ended is lost with the next renewal, and a
// lock is not taken again.
func TestRevoked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry)
		p := ifrit.Invoke(r)
		token, _ := r.Held()
		_, err := w.rpc().Release(t.Context(), &models.ReleaseRequest{Resource: resource("k", "a"), Token: &token})
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
	inWorld(t, func(t *testing.T, w *world) {
		r := lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry)
		p := ifrit.Invoke(r)
		_, err := w.rpc().Release(t.Context(), &models.ReleaseRequest{Resource: resource("k", "a")})
		must(t, err)
		_, err = w.rpc().Lock(t.Context(), &models.LockRequest{Resource: resource("k", "thief"), TtlInSeconds: 100})
		must(t, err)
		err = <-p.Wait()
		if !errors.Is(err, lock.ErrLost) || !errors.Is(err, models.ErrLockCollision) {
			t.Errorf("got %v", err)
		}
	})
}

// TestSignalAtOnce: a signal ends the runner in bounded time, also while its first call
// hangs, and leaves nothing behind.
func TestSignalAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.failing(hang)
		p := ifrit.Background(lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry))
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
	inWorld(t, func(t *testing.T, w *world) {
		client := losing{w.rpc()}
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
	inWorld(t, func(t *testing.T, w *world) {
		for name, r := range map[string]ifrit.Runner{
			"no client":   lock.NewLockRunner(nil, resource("k", "a"), ttl, retry),
			"no resource": lock.NewLockRunner(w.rpc(), nil, ttl, retry),
			"no key":      lock.NewLockRunner(w.rpc(), resource("", "a"), ttl, retry),
			"short TTL":   lock.NewLockRunner(w.rpc(), resource("k", "a"), time.Millisecond, retry),
			"negative":    lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, -1),
			"no logger":   lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry, lock.WithLogger(nil)),
			"no interval": lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry, lock.WithRetryInterval(0)),
			"a claim's":   lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: "k"}, lock.WithRetryInterval(-1)),
			"type":        lock.NewLockRunner(w.rpc(), &models.Resource{Key: "k", Owner: "a", Type: "key"}, ttl, retry),
			"long key":    lock.NewLockRunner(w.rpc(), resource(string(make([]byte, 5000)), "a"), ttl, retry),
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
