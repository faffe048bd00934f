package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestRevoked: a lock that somebody else has released is lost with the next renewal, whose error says whether another owner holds it. The
// runner does not acquire it again.
func TestRevoked(t *testing.T) {
	for holder, want := range map[string]error{"": models.ErrResourceNotFound, "thief": models.ErrLockCollision} {
		inWorld(t, func(t *testing.T, w *world) {
			p := ifrit.Invoke(lock.NewLockRunner(unwatched{w.rpc()}, resource("k", "a"), ttl, retry))
			if holder == "" {
				w.release("k", "a")
			} else {
				w.take("k", "a")
			}
			begin := time.Now()
			err := <-p.Wait()
			if !errors.Is(err, lock.ErrLost) || !errors.Is(err, want) || time.Since(begin) > retry {
				t.Errorf("after %s: %v", time.Since(begin), err)
			}
			w.holds(holder, "k")
		})
	}
}

// TestUnknownGrant: a grant is also released if its answer was lost.
func TestUnknownGrant(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.answering(only(saying(codes.Unavailable), "Lock"))
		p := ifrit.Background(lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry))
		time.Sleep(time.Second)
		w.holds("a", "k")
		must(t, end(p))
		w.holds("", "k")
	})
}

// TestWrong: Run returns an error for invalid arguments, and for requests that the server refuses.
func TestWrong(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		claim := func(claim *models.CreateClaimRequest, options ...lock.Option) *lock.Runner {
			return lock.NewClaimRunner(w.rpc(), claim, options...)
		}
		taken := ifrit.Invoke(w.claim("taken", models.Mode_MODE_EXCLUSIVE))
		for name, r := range map[string]ifrit.Runner{
			"no client":         lock.NewLockRunner(nil, resource("k", "a"), ttl, retry),
			"no resource":       lock.NewLockRunner(w.rpc(), nil, ttl, retry),
			"no key":            lock.NewLockRunner(w.rpc(), resource("", "a"), ttl, retry),
			"short TTL":         lock.NewLockRunner(w.rpc(), resource("k", "a"), time.Millisecond, retry),
			"negative":          lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, -1),
			"no logger":         lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry, lock.WithLogger(nil)),
			"no interval":       lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry, lock.WithRetryInterval(0)),
			"type":              lock.NewLockRunner(w.rpc(), &models.Resource{Key: "k", Owner: "a", Type: "key"}, ttl, retry),
			"long key":          lock.NewLockRunner(w.rpc(), resource(string(make([]byte, 5000)), "a"), ttl, retry),
			"a claim's":         claim(&models.CreateClaimRequest{Resource: "k"}, lock.WithRetryInterval(-1)),
			"no claim":          claim(nil),
			"claim of nothing":  claim(&models.CreateClaimRequest{}),
			"claim's short TTL": claim(&models.CreateClaimRequest{Resource: "k", Ttl: proto.Float64(0.1)}),
			"infinite TTL":      claim(&models.CreateClaimRequest{Resource: "k", Ttl: proto.Float64(1e300)}),
			"short wait TTL":    claim(&models.CreateClaimRequest{Resource: "r"}, lock.WithWaitTTL(time.Millisecond)),
			"bad id":            claim(&models.CreateClaimRequest{Resource: "k", Id: "a/b"}),
			"bad user data":     claim(&models.CreateClaimRequest{Resource: "k", UserData: proto.String("{")}),
			"another's id":      claim(&models.CreateClaimRequest{Resource: "other", Id: "taken"}),
			"one lock twice":    w.both("x", "a", "a"),
			"one without a key": w.both("x", "", "b"),
		} {
			if err := <-ifrit.Background(r).Wait(); err == nil {
				t.Errorf("%s: it ran", name)
			}
		}
		must(t, end(taken))
	})
}
