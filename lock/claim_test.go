package lock_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc/codes"
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
	return w.get(id).GetStatus()
}

// TestClaimsTakeTurns: claims are granted in the order in which they came, each as soon as the one before it has ended. A
// grant is held as long as its runner runs.
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

// TestClaimStopped: a signal withdraws a waiting claim at once, and releases an active one.
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

// TestClaimRevoked: the runner of an active claim that is revoked loses it; the runner of a waiting one ends with an error.
func TestClaimRevoked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		active := ifrit.Invoke(w.claim("a", models.Mode_MODE_EXCLUSIVE))
		waiting := ifrit.Background(w.claim("b", models.Mode_MODE_EXCLUSIVE))
		time.Sleep(time.Second)
		w.revoke("b", "")
		w.revoke("a", "")
		begin := time.Now()
		if err := <-active.Wait(); !errors.Is(err, lock.ErrLost) || time.Since(begin) > ttl/3 {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		if err := <-waiting.Wait(); err == nil || !strings.Contains(err.Error(), "REVOKED") {
			t.Errorf("got %v", err)
		}
	})
}

// TestClaimFoundAgain: when the answer to CreateClaim was lost, the runner trusts the claim for the rest of its lease only.
func TestClaimFoundAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.failing(only(hang, "UpdateClaim"))
		w.answering(only(saying(codes.Unavailable), "CreateClaim"))
		r := lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: "k", Id: "a", Ttl: proto.Float64(30)})
		p := ifrit.Background(r)
		time.Sleep(10 * time.Second)
		w.answering(nil)
		for range 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			_, held := r.Held()
			if held && w.status("a") != models.Status_STATUS_ACTIVE {
				t.Fatal("it trusts a claim that has ended")
			}
			if next, err := w.own().CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "k", Id: "b", Ttl: proto.Float64(1)}); err == nil &&
				next.GetStatus() == models.Status_STATUS_ACTIVE && held {
				t.Fatal("two hold")
			}
		}
		_ = end(p)
	})
}
