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

// claim returns a runner of a claim of "k" that uses its owner as its id.
func (w *world) claim(owner string, mode models.Mode, options ...lock.Option) *lock.Runner {
	return w.claimFor(ttl, owner, mode, options...)
}

func (w *world) claimFor(ttl time.Duration, owner string, mode models.Mode, options ...lock.Option) *lock.Runner {
	return lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{
		Resource: "k", Owner: owner, Id: owner, Mode: mode, Ttl: proto.Float64(ttl.Seconds()),
	}, options...)
}

// longTTL is longer than the wait TTL.
const longTTL = 3 * time.Minute

// long returns a runner of a claim with a long TTL.
func (w *world) long(id string) *lock.Runner {
	return w.claimFor(longTTL, id, models.Mode_MODE_EXCLUSIVE)
}

func (w *world) status(id string) models.Status {
	w.t.Helper()
	return w.get(id).GetStatus()
}

// TestClaimsTakeTurns: claims are granted in order of arrival, each as soon as the one before it has ended. A grant is
// held as long as its runner runs.
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
		if err := <-waiting.Wait(); err == nil || !strings.Contains(err.Error(), "the claim was revoked") {
			t.Errorf("got %v", err)
		}
	})
}

// TestClaimDeniedInLine: one server lets a runner claim, and another does not know it while it waits. The runner ends
// and leaves no claim in the queue.
func TestClaimDeniedInLine(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.make(&models.CreateClaimRequest{Id: "a", Resource: "k", Ttl: proto.Float64(3600)})
		w.failing(only(saying(codes.Unauthenticated), "AwaitClaim"))
		if err := <-ifrit.Background(w.claim("b", models.Mode_MODE_EXCLUSIVE)).Wait(); status.Code(err) != codes.Unauthenticated {
			t.Error(err)
		}
		time.Sleep(time.Second) // it is withdrawn in the background
		if got := w.status("b"); got != models.Status_STATUS_WITHDRAWN {
			t.Error(got)
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

// TestWaitTTL: a runner keeps its place in the queue as long as it waits, even for longer than its wait TTL. After the
// grant its claim lasts for the TTL.
func TestWaitTTL(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first := ifrit.Invoke(w.long("a"))
		next := w.long("b")
		second := ifrit.Background(next)
		time.Sleep(2 * time.Minute)
		must(t, end(first))
		begin := time.Now()
		<-second.Ready()
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("ready after %s", took)
		}
		c := w.get("b")
		if c.GetWaitTtl() != lock.DefaultWaitTTL.Seconds() || c.GetTtl() < longTTL.Seconds()-1 {
			t.Errorf("%v", c)
		}
		time.Sleep(2 * longTTL)
		if _, held := next.Held(); !held {
			t.Error("not held")
		}
		must(t, end(second))
	})
}

// TestRunnersThatAreGone: several dead waiters together delay the next one by one wait TTL.
func TestRunnersThatAreGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first := ifrit.Invoke(w.long("a"))
		for _, id := range []string{"x", "y", "z"} {
			w.make(&models.CreateClaimRequest{Id: id, Resource: "k", Ttl: proto.Float64(3600), WaitTtl: proto.Float64(60)})
		}
		last := ifrit.Background(w.long("b"))
		time.Sleep(time.Second)
		must(t, end(first))
		begin := time.Now()
		<-last.Ready()
		if took := time.Since(begin); took > lock.DefaultWaitTTL {
			t.Errorf("ready after %s", took)
		}
		must(t, end(last))
	})
}

// TestCutOffWhileWaiting: a runner that cannot reach a server for its wait TTL loses its place, and makes a new claim when it can.
func TestCutOffWhileWaiting(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.make(&models.CreateClaimRequest{Id: "a", Resource: "k", Ttl: proto.Float64(3600)})
		runner := w.claim("b", models.Mode_MODE_EXCLUSIVE, lock.WithWaitTTL(10*time.Second))
		p := ifrit.Background(runner)
		time.Sleep(time.Minute)
		w.failing(hang)
		time.Sleep(time.Minute)
		must(t, second(w.own().EndClaim(t.Context(), &models.EndClaimRequest{Id: "a"})))
		if c := w.get("b"); c.GetStatus() != models.Status_STATUS_ABORTED || c.GetReason() != models.AbandonedReason {
			t.Errorf("%v", c)
		}
		w.failing(nil)
		<-p.Ready()
		if id := runner.ClaimID(); id == "b" || w.status(id) != models.Status_STATUS_ACTIVE {
			t.Errorf("holds by %s, %s", id, w.status(id))
		}
		must(t, end(p))
	})
}

// TestWaitTTLOptions: the wait TTL of a claim has priority over WithWaitTTL; with 0 a claim waits for ever.
func TestWaitTTLOptions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for name, c := range map[string]struct {
			claim  *float64
			option []lock.Option
			want   *float64
		}{
			"default": {nil, nil, proto.Float64(60)},
			"option":  {nil, []lock.Option{lock.WithWaitTTL(90 * time.Second)}, proto.Float64(90)},
			"claim":   {proto.Float64(5), []lock.Option{lock.WithWaitTTL(90 * time.Second)}, proto.Float64(5)},
			"none":    {nil, []lock.Option{lock.WithWaitTTL(0)}, nil},
		} {
			p := ifrit.Invoke(lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: name, Id: name, WaitTtl: c.claim}, c.option...))
			if got := w.get(name).WaitTtl; (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("%s: %v", name, got)
			}
			must(t, end(p))
		}
	})
}

// TestClaimBehindSilence: a claim is granted while its runner cannot be reached. When the network is back, the runner
// holds within the timeout of one call: by that claim, or by a new one if it has expired.
func TestClaimBehindSilence(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, 40 * time.Second} {
		for _, silence := range []time.Duration{ttl / 4, 2 * ttl} {
			inWorld(t, func(t *testing.T, w *world) {
				expired := silence > ttl
				w.make(&models.CreateClaimRequest{Resource: "k", Id: "before", Ttl: proto.Float64(1e6)})
				r := lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: "k", Id: "a", Ttl: proto.Float64(ttl.Seconds())})
				p := ifrit.Background(r)
				time.Sleep(3*ttl + ttl/3) // it waits, by many calls
				w.answering(hang)         // the answer to the call under way is lost,
				w.failing(hang)           // and no other request is sent
				must(t, second(w.own().EndClaim(t.Context(), &models.EndClaimRequest{Id: "before"})))
				time.Sleep(silence)
				if expired { // another claim was granted meanwhile
					w.make(&models.CreateClaimRequest{Resource: "k", Id: "between", Ttl: proto.Float64(1e6)})
					must(t, second(w.own().EndClaim(t.Context(), &models.EndClaimRequest{Id: "between"})))
				}
				w.answering(nil)
				w.failing(nil)
				begin := time.Now()
				<-p.Ready()
				took := time.Since(begin)
				t.Logf("TTL %s, silent for %s: it held %s later", ttl, silence, took)
				if took > ttl/2 {
					t.Errorf("TTL %s, silent for %s: it held only %s later", ttl, silence, took)
				}
				if anew := r.ClaimID() != "a"; anew != expired || w.status(r.ClaimID()) != models.Status_STATUS_ACTIVE {
					t.Errorf("TTL %s, silent for %s: the claim %q is %s", ttl, silence, r.ClaimID(), w.status(r.ClaimID()))
				}
				must(t, end(p))
			})
		}
	}
}
