package lock_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
)

// endings are the ways for somebody else to end an active claim, and the holder's error.
var endings = map[models.Status]string{
	models.Status_STATUS_RELEASED:  "the claim was released (maintenance)",
	models.Status_STATUS_ABORTED:   "the claim was aborted (maintenance)",
	models.Status_STATUS_WITHDRAWN: "the claim was withdrawn (maintenance)",
	models.Status_STATUS_REVOKED:   "the claim was revoked (maintenance)",
}

// finish ends the first claim of a queue.
func (w *world) finish(waiting bool, resource string, to models.Status, reason string) {
	w.t.Helper()
	queue, err := w.own().GetQueue(w.t.Context(), &models.GetQueueRequest{Resource: resource})
	must(w.t, err)
	claims := queue.GetHolders()
	if waiting {
		claims = queue.GetWaiters()
	}
	must(w.t, second(w.own().UpdateClaim(w.t.Context(), &models.UpdateClaimRequest{Id: claims[0].GetId(), Status: to, Reason: reason})))
}

// isToldOf fails the test unless an error has the end of a claim.
func isToldOf(t *testing.T, what string, err error, status models.Status) {
	t.Helper()
	var ended models.ClaimEndedError
	if !errors.As(err, &ended) || ended.Status != status || ended.Reason != "maintenance" || !strings.Contains(err.Error(), endings[status]) {
		t.Errorf("%s, when the claim was %s: %v", what, status, err)
	}
}

// TestLossTellsWhy: when somebody else ends the claim of a runner, in any way and at any time, the runner's error has
// the status and the reason.
func TestLossTellsWhy(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		for status := range endings {
			for _, after := range []time.Duration{0, ttl / 2} {
				p := ifrit.Invoke(e.claim("k", "a"))
				time.Sleep(after)
				e.finish(false, "k", status, "maintenance")
				err := <-p.Wait()
				if isToldOf(t, "the runner", err, status); !errors.Is(err, lock.ErrLost) {
					t.Error(err)
				}
			}
		}
	})
}

// TestSessionIsToldWhy: holders, waiters and listeners of a session learn how somebody else has ended its claim.
// Claims that the session itself ends have no cause.
func TestSessionIsToldWhy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client, other := w.client(), w.client()
		session, err := client.Session()
		must(t, err)
		var heard []lock.Status
		session.Listen(func(s lock.Status) { heard = append(heard, s) })
		last := func() lock.Status {
			synctest.Wait()
			return heard[len(heard)-1]
		}
		for status := range endings {
			hold, err := client.Acquire(t.Context(), "k")
			must(t, err)
			w.finish(false, "k", status, "maintenance")
			<-hold.Done()
			isToldOf(t, "the holder", hold.Err(), status)
			isToldOf(t, "the listener", last().Cause, status)
			isToldOf(t, "who asks", session.Status("k").Cause, status)
			must(t, hold.Release(t.Context()))

			if status == models.Status_STATUS_RELEASED { // is for active claims
				continue
			}
			held, err := other.Acquire(t.Context(), "k")
			must(t, err)
			waiting := acquiring(t.Context(), client, "k")
			waits(t, waiting)
			runner := ifrit.Background(lock.NewSessionRunner(client, "k", lock.WithOwner("r")))
			time.Sleep(time.Second)
			w.finish(true, "k", status, "maintenance")
			w.finish(true, "k", status, "maintenance")
			isToldOf(t, "the waiter", (<-waiting).err, status)
			isToldOf(t, "the listener of a waiter", last().Cause, status)
			isToldOf(t, "the runner that waits", <-runner.Wait(), status)
			must(t, held.Release(t.Context()))
		}

		for name, give := range map[string]func() error{
			"unlock":     func() error { return second(session.Unlock(t.Context(), "k")) },
			"unlock all": func() error { return session.UnlockAll(t.Context()) },
		} {
			must(t, second(session.Lock(t.Context(), "k")))
			must(t, give())
			if got := last(); got.Current != lock.None || got.Cause != nil {
				t.Errorf("after %s: %+v", name, got)
			}
		}
	})
}

// TestEndsWhileDetached: a claim that somebody else ends while its session has no stream is lost when the session resumes, with the reason.
func TestEndsWhileDetached(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.client(lock.WithTTL(time.Minute))
		hold, err := client.Acquire(t.Context(), "k")
		must(t, err)
		w.Set(locktest.Cut)
		must(t, second(w.beside().dial().UpdateClaim(t.Context(), &models.UpdateClaimRequest{
			Id: w.holding("k")[0].GetId(), Status: models.Status_STATUS_REVOKED, Reason: "maintenance",
		}, grpc.WaitForReady(true))))
		w.Set(locktest.Open)
		<-hold.Done()
		isToldOf(t, "the holder", hold.Err(), models.Status_STATUS_REVOKED)
	})
}
