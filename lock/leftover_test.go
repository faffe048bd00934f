package lock_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestLeftLockIsReleased: the server may have carried out a renewal although its answer was lost; it then keeps the
// lock for a whole TTL after the runner has lost it. So the runner releases it in the background, after a margin that
// leaves the holder time to stop.
func TestLeftLockIsReleased(t *testing.T) {
	const ttl = 2 * time.Minute
	for name, runner := range map[string]func(c models.LocketClient) *lock.Runner{
		"lock": func(c models.LocketClient) *lock.Runner { return lock.NewLockRunner(c, resource("k", "a"), ttl, retry) },
		"claim": func(c models.LocketClient) *lock.Runner {
			return lock.NewClaimRunner(c, &models.CreateClaimRequest{Resource: "k", Owner: "a", Ttl: proto.Float64(ttl.Seconds())})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := ifrit.Invoke(runner(w.rpc()))
				time.Sleep(ttl / 2)
				w.answering(only(hang, "Lock", "UpdateClaim"))
				if err := <-p.Wait(); !errors.Is(err, lock.ErrTimeUp) {
					t.Fatalf("got %v", err)
				}
				begin := time.Now()
				for time.Since(begin) < ttl/20-time.Second {
					if owner, _ := w.holder("k"); owner != "a" {
						t.Fatalf("%q holds it %s after the loss, within the margin", owner, time.Since(begin))
					}
					time.Sleep(time.Second)
				}
				for owner := "a"; owner != "" && time.Since(begin) < ttl; owner, _ = w.holder("k") {
					time.Sleep(200 * time.Millisecond)
				}
				took := time.Since(begin)
				t.Logf("released %s after the loss; the TTL is %s", took, ttl)
				if took > ttl/20+time.Second {
					t.Errorf("released only %s after the loss", took)
				}
			})
		})
	}
}

// TestLeftPresenceIsReleased: a presence is lost, and its runner is signalled before it has announced it again. It is
// released in the background: the server may have carried out a renewal although its answer was lost.
func TestLeftPresenceIsReleased(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lost := make(chan struct{})
		p := ifrit.Invoke(lock.NewPresenceRunner(w.rpc(), resource("k", "a"), ttl, retry, lock.WithCallbacks(lock.Callbacks{Lost: func(error) { close(lost) }})))
		time.Sleep(ttl / 2)
		w.answering(only(hang, "Lock"))
		<-lost
		must(t, end(p))
		time.Sleep(time.Second)
		if owner, _ := w.holder("k"); owner != "" {
			t.Errorf("%q announces it after the end", owner)
		}
	})
}

// TestLeftLockBounded: the release in the background ends even if no request is answered.
func TestLeftLockBounded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := ifrit.Invoke(lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry))
		w.failing(hang)
		if err := <-p.Wait(); !errors.Is(err, lock.ErrTimeUp) {
			t.Fatalf("got %v", err)
		}
		time.Sleep(ttl/20 + ttl)
		synctest.Wait()
		sent := w.count("Release")
		time.Sleep(3 * time.Minute)
		if later := w.count("Release"); sent == 0 || sent > 12 || later != sent {
			t.Errorf("%d releases, and %d later", sent, later)
		}
	})
}

// TestNextRunWaits: a run does not begin before the release of the run before it has ended. Otherwise a late request could end the
// new grant, which has the same owner.
func TestNextRunWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry)
		p := ifrit.Invoke(r)
		before, _ := r.Held()
		w.failing(hang)
		if err := <-p.Wait(); !errors.Is(err, lock.ErrTimeUp) {
			t.Fatalf("got %v", err)
		}
		locks := w.count("Lock")
		p = ifrit.Background(r)
		time.Sleep(2 * time.Second)
		if again := w.count("Lock"); again != locks {
			t.Errorf("%d calls of Lock before the release", again-locks)
		}
		w.failing(nil)
		<-p.Ready()
		for range 60 {
			time.Sleep(time.Second)
			owner, granted := w.holder("k")
			if token, held := r.Held(); !held || owner != "a" || granted != token || token <= before {
				t.Fatalf("held %t with %d; %q holds with %d; before it was %d", held, token, owner, granted, before)
			}
		}
		must(t, end(p))
		w.failing(hang)
		p = ifrit.Background(r)
		synctest.Wait()
		must(t, end(p)) // cannot be released either
		p = ifrit.Background(r)
		synctest.Wait()
		must(t, end(p)) // a signal ends the wait
	})
}

// successor is a server where an owner's lease ended while its process was stopped, and another process with the same
// owner holds the lock. It answers the renewal after the runner has been signalled.
type successor struct {
	fake
	stopping chan struct{}
}

func (s *successor) Lock(_ context.Context, in *models.LockRequest, _ ...grpc.CallOption) (*models.LockResponse, error) {
	if in.Token == nil {
		return &models.LockResponse{Token: 1}, nil
	}
	<-s.stopping
	return nil, models.ErrResourceNotFound
}

func (s *successor) Release(_ context.Context, in *models.ReleaseRequest, _ ...grpc.CallOption) (*models.ReleaseResponse, error) {
	if in.Token == nil {
		s.called("Release") // of any grant of the owner
	}
	return &models.ReleaseResponse{}, models.ErrResourceNotFound
}

// TestSuccessorIsNotReleased: a runner is signalled during a renewal, whose answer then says that its grant has
// ended. It releases nothing: by now the same owner may have another grant.
func TestSuccessorIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &successor{stopping: make(chan struct{})}
		p := ifrit.Invoke(lock.NewLockRunner(s, resource("k", "a"), ttl, retry))
		time.Sleep(ttl / 3) // a renewal is under way
		p.Signal(os.Interrupt)
		synctest.Wait()
		close(s.stopping)
		<-p.Wait()
		if n := s.count("Release"); n != 0 {
			t.Errorf("released without a token: %d times", n)
		}
	})
}
