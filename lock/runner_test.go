package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// unwatched is a client of a server without Watch.
type unwatched struct{ models.LocketClient }

func (unwatched) Watch(context.Context, *models.WatchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[models.WatchResponse], error) {
	return nil, status.Error(codes.Unimplemented, "unknown method Watch")
}

// late is a client whose watches report no changes.
type late struct{ models.LocketClient }

func (c late) Watch(ctx context.Context, in *models.WatchRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[models.WatchResponse], error) {
	stream, err := c.LocketClient.Watch(ctx, in, opts...)
	return lateStream{stream}, err
}

type lateStream struct {
	grpc.ServerStreamingClient[models.WatchResponse]
}

func (s lateStream) Recv() (*models.WatchResponse, error) {
	m, err := s.ServerStreamingClient.Recv()
	if len(m.GetTransitions()) > 0 {
		<-s.Context().Done()
		return nil, s.Context().Err()
	}
	return m, err
}

// TestRunnersHearOfTheEnd: a runner by calls learns at once that its claim was revoked, and why, also after a restart of the server, and when a
// renewal finds it first. With a server without Watch it learns that at the next renewal.
func TestRunnersHearOfTheEnd(t *testing.T) {
	const long = time.Minute
	inWorld(t, func(t *testing.T, w *world) {
		lostly := func(runner func(lock.Option) *lock.Runner) (ifrit.Process, chan error) {
			lost := make(chan error, 1)
			p := ifrit.Background(runner(lock.WithCallbacks(lock.Callbacks{Lost: func(err error) { lost <- err }})))
			<-p.Ready()
			return p, lost
		}
		ways := map[string]func(c models.LocketClient, o lock.Option) *lock.Runner{
			"lock": func(c models.LocketClient, o lock.Option) *lock.Runner {
				return lock.NewLockRunner(c, resource("lock", ""), long, retry, o)
			},
			"presence": func(c models.LocketClient, o lock.Option) *lock.Runner {
				return lock.NewPresenceRunner(c, resource("presence", ""), long, retry, o)
			},
			"claim": func(c models.LocketClient, o lock.Option) *lock.Runner {
				return lock.NewClaimRunner(c, &models.CreateClaimRequest{Resource: "claim", Ttl: proto.Float64(long.Seconds())}, o)
			},
		}
		for name, way := range ways {
			for _, when := range []string{"while it watches", "after a restart", "before it watches again"} {
				p, lost := lostly(func(o lock.Option) *lock.Runner { return way(w.own(), o) })
				time.Sleep(5 * time.Second) // it watches
				id, most := w.holding(name)[0].GetId(), time.Second
				if when != "while it watches" {
					w.restart(0)
					most = long / 6 // its connection is made again
				}
				if when == "after a restart" {
					time.Sleep(5 * time.Second) // it may watch again
				}
				revoked := time.Now()
				request := &models.UpdateClaimRequest{Id: id, Status: models.Status_STATUS_REVOKED, Reason: "maintenance of " + name}
				must(t, second(w.beside().dial().UpdateClaim(t.Context(), request)))
				err := <-lost
				if took := time.Since(revoked); took > most || !errors.Is(err, lock.ErrLost) || !strings.Contains(fmt.Sprint(err), "revoked (maintenance of "+name+")") {
					t.Errorf("%s, revoked %s: after %v: %v", name, when, took, err)
				}
				if name == "presence" {
					must(t, end(p))
				} else if err := <-p.Wait(); !errors.Is(err, lock.ErrLost) {
					t.Errorf("%s ended with %v", name, err)
				}
			}
			p, lost := lostly(func(o lock.Option) *lock.Runner { return way(late{w.own()}, o) })
			time.Sleep(time.Second) // it watches
			w.revoke(w.holding(name)[0].GetId(), "maintenance of "+name)
			if err := <-lost; !errors.Is(err, lock.ErrLost) || !strings.Contains(fmt.Sprint(err), "revoked (maintenance of "+name+")") {
				t.Errorf("%s, of which a renewal heard first: %v", name, err)
			}
			p.Signal(os.Interrupt)
			<-p.Wait()
			p, lost = lostly(func(o lock.Option) *lock.Runner { return way(unwatched{w.own()}, o) })
			w.revoke(w.holding(name)[0].GetId(), "maintenance of "+name)
			revoked := time.Now()
			if err := <-lost; time.Since(revoked) > long/2 || !errors.Is(err, lock.ErrLost) {
				t.Errorf("%s, without Watch: after %v: %v", name, time.Since(revoked), err)
			}
			p.Signal(os.Interrupt)
			<-p.Wait()
		}
	})
}

// TestFromGroup: FromGroup finds the loss of a lock in the error of a group, and of a group within a group.
func TestFromGroup(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		wait := func(signals <-chan os.Signal, ready chan<- struct{}) error {
			close(ready)
			<-signals
			return nil
		}
		inner := grouper.NewOrdered(os.Interrupt, grouper.Members{
			{Name: "lock", Runner: lock.NewSessionRunner(w.client(), "k")},
			{Name: "work", Runner: ifrit.RunFunc(wait)},
		})
		p := ifrit.Invoke(grouper.NewParallel(os.Interrupt, grouper.Members{{Name: "inner", Runner: inner}, {Name: "other", Runner: ifrit.RunFunc(wait)}}))
		w.resetSessions()
		err := <-p.Wait()
		var trace grouper.ErrorTrace
		if got := lock.FromGroup(err); errors.Is(err, lock.ErrLost) || !errors.Is(got, lock.ErrLost) || !errors.As(got, &trace) || got.Error() != err.Error() {
			t.Errorf("%v, and of the group %v", got, err)
		}
		for _, err := range []error{nil, lock.ErrClosed, fmt.Errorf("own: %w", lock.ErrClosed)} {
			if got := lock.FromGroup(err); !errors.Is(got, err) || fmt.Sprint(got) != fmt.Sprint(err) {
				t.Errorf("%v of %v", got, err)
			}
		}
		if got := lock.FromGroup(fmt.Errorf("wrapped: %w", grouper.ErrorTrace{{Err: lock.ErrLost}})); !errors.Is(got, lock.ErrLost) || errors.Is(got, lock.ErrClosed) {
			t.Error(got)
		}
	})
}

// TestDefaultOwner: a runner without an owner gets a unique one, which names host and process. WithOwner replaces any owner.
func TestDefaultOwner(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		host, err := os.Hostname()
		must(t, err)
		claim := &models.CreateClaimRequest{Resource: "c"}
		seen := make(map[string]bool)
		for _, r := range []*lock.Runner{
			lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry),
			lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry),
			lock.NewPresenceRunner(w.rpc(), resource("k", ""), ttl, retry),
			lock.NewClaimRunner(w.rpc(), claim),
		} {
			if owner := r.Owner(); seen[owner] || !strings.HasPrefix(owner, host+"/") {
				t.Errorf("the owner %q", owner)
			}
			seen[r.Owner()] = true
			p := ifrit.Invoke(r)
			w.holds(r.Owner(), map[bool]string{true: "k", false: "c"}[r.ClaimID() == ""])
			must(t, end(p))
		}
		for _, r := range []*lock.Runner{
			lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry, lock.WithOwner("b")),
			lock.NewClaimRunner(w.rpc(), claim, lock.WithOwner("b")),
		} {
			if r.Owner() != "b" {
				t.Errorf("the owner %q, want b", r.Owner())
			}
		}
		if claim.GetOwner() != "" {
			t.Error("the caller's request was changed")
		}
	})
}

// TestOwnerIsOneParty: two runners with the same owner both hold a lock; with the default owner one of them does.
func TestOwnerIsOneParty(t *testing.T) {
	for owner, want := range map[string]bool{"host-1": true, "": false} {
		inWorld(t, func(t *testing.T, w *world) {
			old := ifrit.Invoke(lock.NewLockRunner(w.rpc(), resource("k", owner), ttl, retry))
			next := ifrit.Background(lock.NewLockRunner(w.rpc(), resource("k", owner), ttl, retry))
			time.Sleep(time.Minute)
			if both := isReady(next); both != want {
				t.Errorf("with the owner %q both hold: %t, want %t", owner, both, want)
			}
			must(t, end(next))
			err := end(old)
			if want && errors.Is(err, lock.ErrLost) { // next has released the lock that both held
				err = nil
			}
			must(t, err)
		})
	}
}

// TestRunTwice: a second Run of a runner that runs is refused, and does not affect the first one. After its end a runner may run
// again.
func TestRunTwice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one := lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry)
		both := lock.NewJoint(
			lock.NewLockRunner(w.rpc(), resource("a", ""), ttl, retry),
			w.claim("b", models.Mode_MODE_EXCLUSIVE))
		for _, r := range []ifrit.Runner{one, both, w.claim("c", models.Mode_MODE_SHARED)} {
			for range 2 {
				p := ifrit.Invoke(r)
				if gone, err := exited(ifrit.Background(r)); !gone || !errors.Is(err, lock.ErrRunning) {
					t.Fatalf("the second run ended: %t, %v", gone, err)
				}
				time.Sleep(2 * ttl)
				if gone, err := exited(p); gone {
					t.Errorf("the first run ended: %v", err)
				}
				must(t, end(p))
			}
		}
		synctest.Wait()
		if _, held := one.Held(); held {
			t.Error("held after the end")
		}
	})
}

// watchedClaims has a scripted Watch. Its claims have ended when that is set.
type watchedClaims struct {
	fake
	feed  models.LocketClient
	ended atomic.Bool
}

func (c *watchedClaims) Watch(ctx context.Context, in *models.WatchRequest, options ...grpc.CallOption) (grpc.ServerStreamingClient[models.WatchResponse], error) {
	return c.feed.Watch(ctx, in, options...)
}

func (c *watchedClaims) UpdateClaim(ctx context.Context, in *models.UpdateClaimRequest, options ...grpc.CallOption) (*models.Claim, error) {
	if c.ended.Load() {
		return nil, status.Error(codes.FailedPrecondition, "it was revoked")
	}
	return c.fake.UpdateClaim(ctx, in, options...)
}

// TestEndMissed: a runner's claim ends in a gap of its watch, which a restarted server does not fill. The runner learns
// of it as soon as the watch continues, not at the next renewal.
func TestEndMissed(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client := &watchedClaims{feed: s.dial()}
		p := ifrit.Invoke(lock.NewClaimRunner(client, &models.CreateClaimRequest{Id: "1", Resource: "a", Ttl: proto.Float64(3600)}))
		watch := s.NextWatch("")
		watch.Out <- &models.WatchResponse{Snapshot: []*models.Claim{live("1", "", 5)}, Cursor: "c1", Synced: true}
		watch.Out <- status.Error(codes.Unavailable, "restarting")
		client.ended.Store(true)
		s.NextWatch("c1").Out <- reason(codes.OutOfRange, models.ReasonCursorTooOld)
		s.NextWatch("").Out <- &models.WatchResponse{Cursor: "c2", Synced: true}
		select {
		case err := <-p.Wait():
			if !errors.Is(err, lock.ErrLost) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("it still holds the claim")
			_ = end(p)
		}
	})
}

// TestWatchComesBack: a runner with a long TTL watches its claim again soon after the end of an outage, however long that was.
func TestWatchComesBack(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client := &watchedClaims{feed: s.dial()}
		p := ifrit.Invoke(lock.NewClaimRunner(client, &models.CreateClaimRequest{Resource: "a", Ttl: proto.Float64(24 * 3600)}))
		started := time.Now()
		for last := started; last.Sub(started) < time.Hour; last = time.Now() {
			s.NextWatch("").Out <- status.Error(codes.ResourceExhausted, "not now")
			if took := time.Since(last); took > time.Minute {
				t.Errorf("it watches again after %v", took)
				break
			}
		}
		must(t, end(p))
	})
}
