package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

func (w *world) claim(owner string, mode models.Mode, options ...lock.Option) *lock.Runner {
	return lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{
		Resource: "k", Owner: owner, Id: owner, Mode: mode, Ttl: proto.Float64(ttl.Seconds()),
	}, options...)
}

func (w *world) status(id string) models.Status {
	w.t.Helper()
	claim, err := w.own().GetClaim(w.t.Context(), &models.GetClaimRequest{Id: id})
	must(w.t, err)
	return claim.GetStatus()
}

// TestClaimsTakeTurns: those that come first are first, each at once when the one before has
// ended, and a grant is held for as long as its runner runs.
func TestClaimsTakeTurns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		processes := make([]ifrit.Process, 4)
		runners := make([]*lock.Runner, len(processes))
		for i := range processes {
			runners[i] = w.claim(string(rune('a'+i)), models.Mode_MODE_EXCLUSIVE)
			processes[i] = ifrit.Background(runners[i])
			time.Sleep(time.Second)
		}
		var last uint64
		for i, p := range processes {
			<-p.Ready()
			time.Sleep(time.Minute)
			token, held := runners[i].Held()
			if !held || token <= last {
				t.Errorf("%d: held %t with %d, after %d", i, held, token, last)
			}
			last = token
			if i+1 < len(processes) && isReady(processes[i+1]) {
				t.Errorf("%d is ready too early", i+1)
			}
			begin := time.Now()
			must(t, end(p))
			if i+1 < len(processes) {
				<-processes[i+1].Ready()
			}
			if took := time.Since(begin); took > 100*time.Millisecond {
				t.Errorf("the grant after %d came after %s", i, took)
			}
		}
	})
}

func TestClaimsShare(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := ifrit.Invoke(w.claim("a", models.Mode_MODE_SHARED)), ifrit.Invoke(w.claim("b", models.Mode_MODE_SHARED))
		alone := ifrit.Background(w.claim("c", models.Mode_MODE_EXCLUSIVE))
		time.Sleep(time.Minute)
		if isReady(alone) {
			t.Error("one holds alone while two share")
		}
		must(t, end(a))
		must(t, end(b))
		<-alone.Ready()
		must(t, end(alone))
	})
}

// TestClaimStopped: a signal withdraws a claim that waits, at once, and releases one that
// is active.
func TestClaimStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		active := ifrit.Invoke(w.claim("a", models.Mode_MODE_EXCLUSIVE))
		waiting := ifrit.Background(w.claim("b", models.Mode_MODE_EXCLUSIVE))
		time.Sleep(time.Minute)
		begin := time.Now()
		must(t, errors.Join(end(waiting), end(active)))
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if a, b := w.status("a"), w.status("b"); a != models.Status_STATUS_RELEASED || b != models.Status_STATUS_WITHDRAWN {
			t.Errorf("%s and %s", a, b)
		}
	})
}

// TestClaimRevoked: a claim that somebody ends is lost, or will never be granted.
func TestClaimRevoked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		active := ifrit.Invoke(w.claim("a", models.Mode_MODE_EXCLUSIVE))
		waiting := ifrit.Background(w.claim("b", models.Mode_MODE_EXCLUSIVE))
		time.Sleep(time.Second)
		for _, id := range []string{"b", "a"} {
			_, err := w.rpc().UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Status: models.Status_STATUS_REVOKED})
			must(t, err)
		}
		begin := time.Now()
		if err := <-active.Wait(); !errors.Is(err, lock.ErrLost) || time.Since(begin) > ttl/3 {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		if err := <-waiting.Wait(); err == nil || !strings.Contains(err.Error(), "REVOKED") {
			t.Errorf("got %v", err)
		}
	})
}

// TestClaimOutage: a claim waits through an outage at its place in the line, and is held
// through one that is shorter than its lease.
func TestClaimOutage(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first := w.claim("a", models.Mode_MODE_EXCLUSIVE)
		p := ifrit.Invoke(first)
		q := ifrit.Background(w.claim("b", models.Mode_MODE_EXCLUSIVE))
		time.Sleep(time.Minute)
		before, _ := first.Held()
		w.stop()
		time.Sleep(5 * time.Second)
		w.start()
		time.Sleep(time.Minute)
		if after, held := first.Held(); !held || after != before {
			t.Errorf("held %t with %d, before %d", held, after, before)
		}
		late := ifrit.Background(w.claim("c", models.Mode_MODE_EXCLUSIVE))
		must(t, end(p))
		<-q.Ready()
		must(t, errors.Join(end(late), end(q)))
	})
}

// forgetful is a client to whom the answers to CreateClaim are lost, until heard is set.
type forgetful struct {
	models.LocketClient
	heard *atomic.Bool
}

func (c forgetful) CreateClaim(ctx context.Context, in *models.CreateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	claim, err := c.LocketClient.CreateClaim(ctx, in, opts...)
	if !c.heard.Load() {
		return nil, status.Error(codes.Unavailable, "the answer was lost")
	}
	return claim, err
}

func (c forgetful) UpdateClaim(ctx context.Context, in *models.UpdateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	return nil, hang(ctx, "")
}

// TestClaimFoundAgain: a claim whose answer was lost is trusted for what is left of its
// lease, not for a whole one.
func TestClaimFoundAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := forgetful{w.rpc(), new(atomic.Bool)}
		r := lock.NewClaimRunner(client, &models.CreateClaimRequest{Resource: "k", Id: "a", Ttl: proto.Float64(30)})
		p := ifrit.Background(r)
		time.Sleep(10 * time.Second)
		client.heard.Store(true)
		for range 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			_, held := r.Held()
			if owner := w.status("a"); held && owner != models.Status_STATUS_ACTIVE {
				t.Fatal("it trusts a claim that has ended")
			}
			if next, err := w.rpc().CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "k", Id: "b", Ttl: proto.Float64(1)}); err == nil &&
				next.GetStatus() == models.Status_STATUS_ACTIVE && held {
				t.Fatal("two hold")
			}
		}
		_ = end(p)
	})
}

func TestClaimWrong(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ifritOf := func(claim *models.CreateClaimRequest) ifrit.Process {
			return ifrit.Background(lock.NewClaimRunner(w.rpc(), claim))
		}
		for name, p := range map[string]ifrit.Process{
			"no claim":      ifritOf(nil),
			"no resource":   ifritOf(&models.CreateClaimRequest{}),
			"a short TTL":   ifritOf(&models.CreateClaimRequest{Resource: "k", Ttl: proto.Float64(0.1)}),
			"an infinite":   ifritOf(&models.CreateClaimRequest{Resource: "k", Ttl: proto.Float64(1e300)}),
			"a bad id":      ifritOf(&models.CreateClaimRequest{Resource: "k", Id: "a/b"}),
			"bad user data": ifritOf(&models.CreateClaimRequest{Resource: "k", UserData: proto.String("{")}),
		} {
			if err := <-p.Wait(); err == nil {
				t.Errorf("%s: it ran", name)
			}
		}
		taken := ifrit.Invoke(w.claim("a", models.Mode_MODE_EXCLUSIVE))
		if err := <-ifritOf(&models.CreateClaimRequest{Resource: "other", Id: "a"}).Wait(); err == nil {
			t.Error("it ran with another's id")
		}
		must(t, end(taken))
	})
}
