package lock_test

import (
	"testing"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// longTTL is longer than the wait TTL.
const longTTL = 3 * time.Minute

// long returns a runner of a claim with a long TTL.
func (w *world) long(id string, options ...lock.Option) *lock.Runner {
	return lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{
		Resource: "k", Owner: id, Id: id, Ttl: proto.Float64(longTTL.Seconds()),
	}, options...)
}

// TestWaitTTL: a runner keeps its place in the queue as long as it waits, also for longer than its wait TTL. After the grant its claim
// lasts for the TTL.
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
